"""Reading YAML so that a mistake can be shown: plain values, and the line on which each of them stands.

YAML 1.1 turns `yes`, `12:30` and `2030-01-31` into something else; here only what JSON knows is more than text, with
numbers kept to the digit (`exact_json.py`). A repeated key, a tag and a merge are mistakes. What aliases add up to is
bounded.
"""

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import yaml

from shared.a2a.exact_json import ExactNumber, parse_integer

MAX_NODES = 20_000
Path: TypeAlias = tuple[Hashable, ...]

_TAG = "tag:yaml.org,2002:"
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?$")


class YamlInvalid(Exception):
    """The text is not YAML of this kind; says on which line and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A value, and the line of each of its members by their path, the first line being 1."""

    value: Any
    lines: Mapping[Path, int]

    def line_of(self, path: Path) -> int:
        """Give the line of a member, or of the nearest thing around it that was written."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read_yaml(text: str) -> Document:
    """Read one document. Raises YamlInvalid."""
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
    """Knows null, true, false and JSON's numbers; all else is text."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 (this is how PyYAML's loaders are configured)


_Loader.add_implicit_resolver(f"{_TAG}null", re.compile(r"(?:null|~|)$"), ["n", "~", ""])
_Loader.add_implicit_resolver(f"{_TAG}bool", re.compile(r"(?:true|false)$"), ["t", "f"])
_Loader.add_implicit_resolver(f"{_TAG}float", _NUMBER, list("-0123456789"))


class _Reader:
    """Turns nodes into values, noting lines on the way."""

    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}
        self._count = 0

    def read(self, node: yaml.Node, path: Path) -> Any:
        self._count += 1
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

    def _read_mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
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
