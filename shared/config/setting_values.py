"""The types of settings that are parsed from text: lists, networks, JSON and addresses."""

import json
import re
from collections.abc import Callable
from ipaddress import ip_network
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, HttpUrl, TypeAdapter


def _parts(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _of_text(read: Callable[[str], object]) -> BeforeValidator:
    """Return a validator that parses a string. It returns any other value unchanged, because a program passed it."""
    return BeforeValidator(lambda value: read(value) if isinstance(value, str) else value)


def _plain_address(value: str) -> str:
    # Validate only and keep the text: pydantic's HttpUrl would change it, for example by adding a slash.
    TypeAdapter(HttpUrl).validate_python(value)
    # Remove a trailing slash: links are built as f"{base_url}/path", so the slash would be doubled.
    return value.rstrip("/")


def credit_amount(*, digits: int) -> AfterValidator:
    """Return a validator of a decimal number of credits with at most `digits` digits before the point."""

    def check(value: str) -> str:
        if re.fullmatch(rf"(?:0|[1-9][0-9]{{0,{digits - 1}}})(?:\.[0-9]{{1,6}})?", value) is None:
            raise ValueError(f"must be a number from 0 to {'9' * digits}.999999, with at most six decimals")
        return value

    return AfterValidator(check)


COMMA_SEPARATED = _of_text(_parts)
NETWORKS = _of_text(lambda value: [ip_network(at, strict=False) for at in _parts(value)])
JSON = _of_text(json.loads)
WebAddress = Annotated[str, AfterValidator(_plain_address)]
"""An http or https URL, without a trailing slash."""
Issuer = Annotated[str, AfterValidator(lambda value: value.rstrip("/"))]
"""An issuer of tokens, without a trailing slash."""
