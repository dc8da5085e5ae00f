"""Describe missing and invalid settings: the value, the accepted range, and what to do."""

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
    """Settings are missing or invalid; each line names one, its value, its range and the remedy."""

    @classmethod
    def of(cls, error: ValidationError, fields: Mapping[str, FieldInfo]) -> Self:
        """Return the error that describes what pydantic found."""
        return cls("\n".join(_describe(found, fields) for found in error.errors(include_url=False)))


def _describe(found: ErrorDetails, fields: Mapping[str, FieldInfo]) -> str:
    name = str(found["loc"][0])
    if found["type"] == "missing":
        return f"{name.upper()} is missing. Set it ({MEANING})."
    # Secrets and URLs (which may hold passwords) are never shown.
    shown = "" if _SECRET.search(name) else f"={str(found['input'])[:SHOWN_CHARACTERS]}"
    # pydantic's own texts, with its prefixes replaced.
    bound = found["msg"].removeprefix("Value error, ").replace("Input should", "it should")
    remedy = (
        "Change it" if fields[name].is_required() else f"Change it or leave it out: {_default(fields[name])}"
    )
    return f"{name.upper()}{shown} is not usable: {bound}. {remedy} ({MEANING})."


def _default(field: FieldInfo) -> str:
    return (
        "the default is empty" if field.default in (None, (), "", {}) else f"the default is {field.default}"
    )
