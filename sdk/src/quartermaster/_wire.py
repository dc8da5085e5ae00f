"""Format and parse values in URLs and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from urllib.parse import quote
from uuid import UUID

Value = str | int | UUID | datetime | None


def camel_case(name: str) -> str:
    """Return a name in camelCase."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def query_of(parameters: Mapping[str, Value]) -> dict[str, str]:
    """Return query parameters with camelCase names. Parameters with the value None are omitted."""
    return {camel_case(name): _write(value) for name, value in parameters.items() if value is not None}


def write_timestamp(moment: datetime) -> str:
    """Return a time as text in UTC (RFC 3339). Raises ValueError if the time has no time zone."""
    if moment.utcoffset() is None:
        raise ValueError(f"{moment} has no time zone; use for example datetime.now(timezone.utc).")
    return moment.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def read_timestamp(text: str) -> datetime:
    """Return the time that a timestamp in a response states."""
    # Normalize the text: before Python 3.11, fromisoformat accepts no `Z`, and only fractions of 3 or 6 digits.
    whole, dot, fraction = text.removesuffix("Z").partition(".")
    moment = datetime.fromisoformat(whole + dot + (fraction.ljust(6, "0") if dot else ""))
    return moment.replace(tzinfo=timezone.utc)


def identifier(value: UUID | str) -> UUID:
    """Return an id as a UUID. Raises ValueError if the text is not a UUID, because it could change a request's path."""
    return value if isinstance(value, UUID) else UUID(value)


def _write(value: Value) -> str:
    return write_timestamp(value) if isinstance(value, datetime) else str(value)


def quote_segment(text: str) -> str:
    """Return text as one percent-encoded segment of a URL path."""
    return quote(text, safe="")
