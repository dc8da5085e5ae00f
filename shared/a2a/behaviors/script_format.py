"""Reading a script: YAML in, a `Script` out, or every mistake by line and key.

Checks here what concerns several steps or rules, above all that nothing stands where it is never reached; in
`script_schema.py` what a key may hold.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from shared.a2a.behaviors import script_yaml
from shared.a2a.behaviors.script_schema import MAX_REPEATS, RuleTable, ScriptTables, StepTable
from shared.a2a.behaviors.script_yaml import Document, YamlInvalid

MAX_SCRIPT_BYTES = 128 << 10  # reading YAML costs six seconds of a processor for each MiB
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
    """The script cannot be used; `problems` says where and why, one line each."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems[:MAX_PROBLEMS])
        if len(problems) > MAX_PROBLEMS:
            self.problems += (f"and {len(problems) - MAX_PROBLEMS} more",)
        super().__init__("\n".join(self.problems))


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The rules in their order: the first that matches a message decides."""

    rules: tuple[RuleTable, ...]


def read_script(path: Path) -> Script:
    """Read and check a file. Raises ScriptInvalid, naming everything that is wrong with it."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SCRIPT_BYTES + 1)
        return parse_script(content.decode(), source=path.name)
    except OSError as error:
        raise ScriptInvalid([f"{path.name}: cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ScriptInvalid([f"{path.name}: is not UTF-8 at byte {error.start}"]) from error


def parse_script(text: str, *, source: str = "script") -> Script:
    """Make a script of a YAML text; `source` names it in errors. Raises ScriptInvalid."""
    if len(text.encode()) > MAX_SCRIPT_BYTES:
        raise ScriptInvalid([f"{source}: is larger than {MAX_SCRIPT_BYTES >> 10} KiB"])
    try:
        document = script_yaml.read_yaml(text)
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
    """Count the steps that a sequence comes to, each chunk and repetition one."""
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
    """Write one of pydantic's problems."""
    message = _SENTENCES.get(problem["type"], problem["msg"].removeprefix("Value error, "))
    if problem["type"] == "literal_error":
        message = f"must be {problem['ctx']['expected'].lower()}"
    return _placed(problem["loc"], message, document)


def _placed(path: _Path, message: str, document: Document) -> str:
    """Write a problem as `12: rules[0].steps[2].artifact: what is wrong`."""
    name = ""
    for part in path:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
    return f"{document.line_of(path)}: {name or 'the script'}: {message}"
