"""JSON that keeps each number as it was written: 9007199254740993, 1.10, 1e400, -0, integers of any length.

A client must get back the revisions and amounts that it sent. Columns have the type `text`: `jsonb` loses the order of
keys and the spelling of exponents, and the driver parses `json` with rounded numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from sqlalchemy import Dialect, Text, TypeDecorator

_PLAIN_DIGITS = 1000
"""Longer integers are kept as text: converting digits takes time that grows with their square."""


class ExactNumber(float):
    """A JSON number with its original text, for numbers that a plain `int` cannot reproduce.

    Calculations with this number return plain floats.
    """

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> ExactNumber:
        """Create a number from its JSON text. A number that is too large for a float is infinite in calculations."""
        number = super().__new__(cls, text)
        number.text = text
        return number


def parse(text: str | bytes) -> Any:
    """Parse JSON that was checked when it arrived. Raises ValueError if it is not JSON."""
    return json.loads(text, parse_float=ExactNumber, parse_int=parse_integer, parse_constant=_no_number)


def parse_integer(text: str) -> int | ExactNumber:
    """Return the integer of a text. For -0 and very long integers, return an `ExactNumber` with the text."""
    # int("-0") is 0, which would lose the sign.
    if text == "-0" or len(text) > _PLAIN_DIGITS:
        return ExactNumber(text)
    return int(text)


NUMBERS: Mapping[str, Callable[[str], Any]] = {"parse_float": ExactNumber, "parse_int": parse_integer}
"""Arguments for `json.loads` and `json.load` that keep numbers exact."""


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def render(value: Any) -> str:
    """Return JSON without spaces. Raises ValueError or TypeError for values that JSON cannot express."""
    pieces: list[str] = []
    _write(value, pieces.append)
    return "".join(pieces)


class ExactJson(TypeDecorator[Any]):
    """A column of JSON values, stored as text."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002 (the base's signature)
        """Return the JSON text of a value. None becomes SQL's NULL, so the column cannot store JSON's null."""
        return None if value is None else render(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ARG002 (the base's signature)
        """Return the value of a stored JSON text."""
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
