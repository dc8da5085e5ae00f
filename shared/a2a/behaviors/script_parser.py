"""Parse a YAML script into a checked `Script`, or report all mistakes with their lines and keys.

This module checks what concerns several steps or rules, above all that no step is unreachable; `script_schema.py`
defines what a key may hold. Values follow JSON: YAML 1.1 would turn `yes`, `12:30` and `2030-01-31` into other types,
so here everything that is not null, a boolean or a number in JSON is text, and numbers keep their digits
(`exact_json.py`). Repeated keys, tags and merges are mistakes.

`ScriptFile` reads a changed file at once, so the author of a script sees the effect or the mistakes with the next
message. An invalid script replaces the previous one: continuing with the old one would hide the mistake.
"""

import re
import threading
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from pydantic import ValidationError

from shared.a2a.behaviors.script_schema import MAX_REPEATS, RuleTable, ScriptTables, StepTable
from shared.a2a.exact_json import ExactNumber, parse_integer

MAX_NODES = 20_000
"""Limit for the values of a document, with aliases expanded."""
KeyPath: TypeAlias = tuple[Hashable, ...]

_TAG = "tag:yaml.org,2002:"
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?$")


class YamlInvalid(Exception):
    """The text is not YAML of this kind; the message has the line and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A value, and the lines of its members by path; the first line is 1."""

    value: Any
    lines: Mapping[KeyPath, int]

    def line_of(self, path: KeyPath) -> int:
        """Return the line of a member, or of its nearest parent in the text."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read_yaml(text: str) -> Document:
    """Parse one document. Raises YamlInvalid."""
    try:
        root = yaml.compose(text, Loader=_Loader)
        reader = _Reader()
        value = None if root is None else reader.read(root, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlInvalid(f"{mark.line + 1 if mark else 1}: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise YamlInvalid(f"1: {str(error).splitlines()[0]}") from error
    except RecursionError as error:
        raise YamlInvalid("1: is nested too deeply") from error
    return Document(value=value, lines=reader.lines)


class _Loader(yaml.SafeLoader):
    """Resolves null, true, false and JSON's numbers; everything else is text."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 (this is how PyYAML's loaders are configured)


_Loader.add_implicit_resolver(f"{_TAG}null", re.compile(r"(?:null|~|)$"), ["n", "~", ""])
_Loader.add_implicit_resolver(f"{_TAG}bool", re.compile(r"(?:true|false)$"), ["t", "f"])
_Loader.add_implicit_resolver(f"{_TAG}float", _NUMBER, list("-0123456789"))


class _Reader:
    """Turns YAML nodes into values and records their lines."""

    def __init__(self) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._count = 0

    def read(self, node: yaml.Node, path: KeyPath) -> Any:
        self._count += 1
        # Counted with aliases expanded: nested aliases make a small document very large.
        if self._count > MAX_NODES:
            raise YamlInvalid(f"{_line(node)}: there are more than {MAX_NODES:,} values")
        self.lines.setdefault(path, _line(node))
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._read_mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self.read(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        raise YamlInvalid(f"{_line(node)}: tags are not understood here")

    def _read_mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        read: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if not isinstance(key, str):
                raise YamlInvalid(f"{_line(key_node)}: a key must be text")
            if key in read:
                raise YamlInvalid(f"{_line(key_node)}: {key} stands here twice")
            self.lines[(*path, key)] = _line(key_node)
            read[key] = self.read(value_node, (*path, key))
        return read


def _scalar(node: yaml.ScalarNode) -> Any:
    if node.tag == f"{_TAG}str":
        return node.value
    if node.tag == f"{_TAG}null":
        return None
    if node.tag == f"{_TAG}bool" and node.value in ("true", "false"):
        return node.value == "true"
    if node.tag == f"{_TAG}float" and _NUMBER.match(node.value):
        is_integer = node.value.lstrip("-").isdigit()
        return parse_integer(node.value) if is_integer else ExactNumber(node.value)
    raise YamlInvalid(f"{_line(node)}: tags are not understood here")


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


MAX_SCRIPT_BYTES = 128 << 10  # parsing YAML takes six seconds of CPU time for each MiB
MAX_PROBLEMS = 20
ENDINGS = frozenset({"complete", "fail", "reject", "cancel", "message", "error", "hang", "silence", "crash"})
_SENTENCES = {
    "missing": "is required",
    "extra_forbidden": "is not a known key",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
    "too_long": "is too long",
    "string_too_long": "is too long",
}


class ScriptInvalid(Exception):
    """The script is invalid; `problems` has one line for each mistake."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems[:MAX_PROBLEMS])
        if len(problems) > MAX_PROBLEMS:
            self.problems += (f"and {len(problems) - MAX_PROBLEMS} more",)
        super().__init__("\n".join(self.problems))


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The rules in order. The steps of the first rule that matches a message are played."""

    rules: tuple[RuleTable, ...]


def read_script(path: Path) -> Script:
    """Parse a file. Raises ScriptInvalid with all mistakes."""
    try:
        with path.open("rb") as file:
            # One byte more shows that the file is too large, without reading all of it.
            content = file.read(MAX_SCRIPT_BYTES + 1)
        return parse_script(content.decode(), source=path.name)
    except OSError as error:
        raise ScriptInvalid([f"{path.name}: cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ScriptInvalid([f"{path.name}: is not UTF-8 at byte {error.start}"]) from error


def parse_script(text: str, *, source: str = "script") -> Script:
    """Parse a YAML text; `source` names it in errors. Raises ScriptInvalid."""
    if len(text.encode()) > MAX_SCRIPT_BYTES:
        raise ScriptInvalid([f"{source}: is larger than {MAX_SCRIPT_BYTES >> 10} KiB"])
    try:
        document = read_yaml(text)
    except YamlInvalid as error:
        raise ScriptInvalid([f"{source}:{error}"]) from error
    try:
        tables = ScriptTables.model_validate(document.value)
    except ValidationError as error:
        raise ScriptInvalid(
            [f"{source}:{_described(problem, document)}" for problem in error.errors()]
        ) from error
    problems = list(_rule_problems(tables.rules, ("rules",), is_nested=False))
    if problems:
        raise ScriptInvalid([f"{source}:{_placed(path, message, document)}" for path, message in problems])
    return Script(rules=tuple(tables.rules))


_Path = tuple[str | int, ...]
_Problem = tuple[_Path, str]


def _rule_problems(rules: Sequence[RuleTable], path: _Path, *, is_nested: bool) -> Iterator[_Problem]:
    for index, rule in enumerate(rules):
        if index and rules[index - 1].match is None:
            yield (*path, index), "is never reached: the rule before it matches every message"
        yield from _step_problems(rule.steps, (*path, index, "steps"), is_nested=is_nested)
        if _length(rule.steps) > MAX_REPEATS:
            yield (*path, index, "steps"), f"makes more than {MAX_REPEATS:,} steps"


def _step_problems(steps: Sequence[StepTable], path: _Path, *, is_nested: bool) -> Iterator[_Problem]:
    has_acted = False
    for index, step in enumerate(steps):
        before = index > 0
        if before and _ends(steps[index - 1]):
            yield (*path, index), "is never reached: the step before it is the last"
        if _is_direct(step) and (is_nested or has_acted):
            yield (
                (*path, index),
                "answers instead of a task: only delays may come before it, and no task may have begun",
            )
        if step.error is not None and (is_nested or before):
            yield (*path, index), "refuses the request: it must be the only step, and no task may have begun"
        for asked in ("input_required", "auth_required"):
            then = getattr(step, asked) and getattr(step, asked).then
            if then:
                yield from _rule_problems(then, (*path, index, asked, "then"), is_nested=True)
        if step.repeat is not None:
            yield from _step_problems(step.repeat.steps, (*path, index, "repeat", "steps"), is_nested=True)
        has_acted = has_acted or step.verb != "delay"


def _ends(step: StepTable) -> bool:
    return step.verb in ENDINGS or (step.echo is not None and step.echo.form in ("complete", "message"))


def _is_direct(step: StepTable) -> bool:
    return step.verb == "message" or (step.echo is not None and step.echo.form == "message")


def _length(steps: Sequence[StepTable]) -> int:
    """Return the number of steps to play, with each chunk and repetition counted."""
    total = 0
    for step in steps:
        if step.repeat is not None:
            total += step.repeat.times * _length(step.repeat.steps)
        elif step.artifact is not None and step.artifact.chunks is not None:
            total += len(step.artifact.chunks)
        else:
            total += 1
    return total


def _described(problem: Any, document: Document) -> str:
    """Return the text for one of pydantic's errors, with the line and the key of the mistake."""
    message = _SENTENCES.get(problem["type"], problem["msg"].removeprefix("Value error, "))
    if problem["type"] == "literal_error":
        message = f"must be {problem['ctx']['expected'].lower()}"
    return _placed(problem["loc"], message, document)


def _placed(path: _Path, message: str, document: Document) -> str:
    """Return a mistake as `12: rules[0].steps[2].artifact: message`."""
    name = ""
    for part in path:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
    return f"{document.line_of(path)}: {name or 'the script'}: {message}"


KEPT_SCRIPTS = 256


class ScriptFile:
    """Returns the current script of a file; safe to share between threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._signature: tuple[int, int, int] | None = None
        self._script: Script | tuple[str, ...] | None = None

    def current(self) -> Script:
        """Return the script of the file's current content. Raises ScriptInvalid."""
        with self._lock:
            signature = self._stat()
            if self._script is None or signature != self._signature:
                self._signature, self._script = signature, self._read()
            script = self._script
        if isinstance(script, Script):
            return script
        raise ScriptInvalid(script)

    def _read(self) -> Script | tuple[str, ...]:
        try:
            return read_script(self._path)
        except ScriptInvalid as invalid:
            # Keep the problems as the result, so that an invalid file is not parsed again for each message.
            return invalid.problems

    def _stat(self) -> tuple[int, int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        # The inode too: an editor may replace the file within the clock's resolution.
        return status.st_mtime_ns, status.st_size, status.st_ino


@lru_cache(KEPT_SCRIPTS)
def script_of(text: str) -> Script:
    """Return the script of a text, and cache the result. Raises ScriptInvalid."""
    return parse_script(text)
