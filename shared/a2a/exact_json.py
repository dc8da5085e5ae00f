"""JSON that keeps every number as it was written: 9007199254740993, 1.10, 1e400, -0, integers of any length.

A client must get back the revisions and amounts it sent. Columns are of type `text`: `jsonb` would lose the order of
keys and the spelling of exponents, and the driver parses `json` with rounded numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from sqlalchemy import Dialect, Text, TypeDecorator

_PLAIN_DIGITS = 1000
"""Integers of more digits are kept as text: turning digits into a number takes time that grows with their square."""


class ExactNumber(float):
    """A number that is no plain integer, with the text it came in; what is computed from it is a plain float."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> ExactNumber:
        """Read a JSON number; too large a one is infinite in computations, and still written as it came."""
        number = super().__new__(cls, text)
        number.text = text
        return number


def parse(text: str | bytes) -> Any:
    """Parse JSON that was checked when it arrived; raise ValueError when it is none."""
    return json.loads(text, parse_float=ExactNumber, parse_int=parse_integer, parse_constant=_no_number)


def parse_integer(text: str) -> int | ExactNumber:
    """Read the digits of an integer; -0 and enormous ones stay text."""
    if text == "-0" or len(text) > _PLAIN_DIGITS:
        return ExactNumber(text)
    return int(text)


NUMBERS: Mapping[str, Callable[[str], Any]] = {"parse_float": ExactNumber, "parse_int": parse_integer}
"""How a parser of the standard library is told to keep numbers."""


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def render(value: Any) -> str:
    """Write JSON without spaces; raise ValueError or TypeError for what JSON has no word for."""
    pieces: list[str] = []
    _write(value, pieces.append)
    return "".join(pieces)


class ExactJson(TypeDecorator[Any]):
    """A column that gives and takes JSON values, stored as their text."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002 (the base's signature)
        """Write what goes in; None is SQL's NULL, and JSON's null cannot be stored by itself."""
        return None if value is None else render(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ARG002 (the base's signature)
        """Read what comes out."""
        return None if value is None else parse(value)


def _write(value: Any, put: Callable[[str], None]) -> None:
    if isinstance(value, dict):
        _write_object(value, put)
    elif isinstance(value, list | tuple):
        _write_array(value, put)
    elif isinstance(value, ExactNumber):
        put(value.text)
    else:
        put(json.dumps(value, ensure_ascii=False, allow_nan=False))


def _write_object(value: Mapping[str, Any], put: Callable[[str], None]) -> None:
    opener = "{"
    for name, member in value.items():
        put(f"{opener}{json.dumps(name, ensure_ascii=False)}:")
        _write(member, put)
        opener = ","
    put("}" if value else "{}")


def _write_array(value: list[Any] | tuple[Any, ...], put: Callable[[str], None]) -> None:
    opener = "["
    for item in value:
        put(opener)
        _write(item, put)
        opener = ","
    put("]" if value else "[]")
