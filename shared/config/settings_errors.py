"""Describe missing and invalid settings: the value, the accepted range, and the correction."""

import re
from collections.abc import Mapping
from typing import Self

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

SHOWN_CHARACTERS = 80
MEANING = "deploy/environment.example says what it is"
_SECRET = re.compile(r"_(url|keys?|secret|key_id|sources)$")


class SettingsInvalid(Exception):
    """Settings are missing or invalid. Each line names one setting, its value, its range and the correction."""

    @classmethod
    def of(cls, error: ValidationError, fields: Mapping[str, FieldInfo]) -> Self:
        """Return the error that describes the faults in pydantic's ValidationError."""
        return cls("\n".join(_describe(found, fields) for found in error.errors(include_url=False)))


def _describe(found: ErrorDetails, fields: Mapping[str, FieldInfo]) -> str:
    name = str(found["loc"][0])
    if found["type"] == "missing":
        return f"{name.upper()} is missing. Set it ({MEANING})."
    # Never show the values of secrets, or of URLs, which may contain passwords.
    shown = "" if _SECRET.search(name) else f"={str(found['input'])[:SHOWN_CHARACTERS]}"
    # Use pydantic's own text, but replace its prefixes.
    bound = found["msg"].removeprefix("Value error, ").replace("Input should", "it should")
    remedy = (
        "Change it" if fields[name].is_required() else f"Change it or leave it out: {_default(fields[name])}"
    )
    return f"{name.upper()}{shown} is not usable: {bound}. {remedy} ({MEANING})."


def _default(field: FieldInfo) -> str:
    return (
        "the default is empty" if field.default in (None, (), "", {}) else f"the default is {field.default}"
    )
