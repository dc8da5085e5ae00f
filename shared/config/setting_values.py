"""How the values of settings are written in the environment, as types of fields: lists, networks, JSON, addresses."""

import json
import re
from collections.abc import Callable
from ipaddress import ip_network
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, HttpUrl, TypeAdapter


def _parts(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _of_text(read: Callable[[str], object]) -> BeforeValidator:
    """Read what comes from the environment; what a program gives is taken as it is."""
    return BeforeValidator(lambda value: read(value) if isinstance(value, str) else value)


def _plain_address(value: str) -> str:
    TypeAdapter(HttpUrl).validate_python(value)
    return value.rstrip("/")


def credit_amount(*, digits: int) -> AfterValidator:
    """Check a decimal number of credits with so many digits before the point."""

    def check(value: str) -> str:
        if re.fullmatch(rf"(?:0|[1-9][0-9]{{0,{digits - 1}}})(?:\.[0-9]{{1,6}})?", value) is None:
            raise ValueError(f"must be a number from 0 to {'9' * digits}.999999, with at most six decimals")
        return value

    return AfterValidator(check)


COMMA_SEPARATED = _of_text(_parts)
NETWORKS = _of_text(lambda value: [ip_network(at, strict=False) for at in _parts(value)])
JSON = _of_text(json.loads)
WebAddress = Annotated[str, AfterValidator(_plain_address)]
"""An address of HTTP, without a slash at its end."""
Issuer = Annotated[str, AfterValidator(lambda value: value.rstrip("/"))]
"""An issuer of tokens, without a slash at its end."""
