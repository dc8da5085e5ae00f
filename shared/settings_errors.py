"""Say of settings that are missing or wrong what they are, what they have to be, and what to do."""

import re
from collections.abc import Mapping
from typing import Self

from pydantic import AfterValidator, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

SHOWN_CHARACTERS = 80
MEANING = "deploy/environment.example says what it is"
_SECRET = re.compile(r"_(url|keys?|secret|key_id|sources)$")


class SettingsWrong(Exception):
    """Settings are missing or not usable; each line names one with its value, its bound and the remedy."""

    @classmethod
    def of(cls, error: ValidationError, fields: Mapping[str, FieldInfo]) -> Self:
        """Describe what pydantic found."""
        return cls("\n".join(_describe(found, fields) for found in error.errors(include_url=False)))


def credit_amount(*, digits: int) -> AfterValidator:
    """Check a decimal number of credits with so many digits before the point."""

    def check(value: str) -> str:
        if re.fullmatch(rf"(?:0|[1-9][0-9]{{0,{digits - 1}}})(?:\.[0-9]{{1,6}})?", value) is None:
            raise ValueError(f"must be a number from 0 to {'9' * digits}.999999, with at most six decimals")
        return value

    return AfterValidator(check)


def _describe(found: ErrorDetails, fields: Mapping[str, FieldInfo]) -> str:
    name = str(found["loc"][0])
    if found["type"] == "missing":
        return f"{name.upper()} is missing. Set it ({MEANING})."
    shown = "" if _SECRET.search(name) else f"={str(found['input'])[:SHOWN_CHARACTERS]}"
    bound = found["msg"].removeprefix("Value error, ").replace("Input should", "it should")
    remedy = (
        "Change it" if fields[name].is_required() else f"Change it or leave it out: {_default(fields[name])}"
    )
    return f"{name.upper()}{shown} is not usable: {bound}. {remedy} ({MEANING})."


def _default(field: FieldInfo) -> str:
    return (
        "the default is empty" if field.default in (None, (), "", {}) else f"the default is {field.default}"
    )
