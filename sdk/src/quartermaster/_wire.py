"""How values are written in addresses and JSON, and read again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from urllib.parse import quote
from uuid import UUID

Value = str | int | UUID | datetime | None


def camel_case(name: str) -> str:
    """Spell a name as the wire does."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def query_of(parameters: Mapping[str, Value]) -> dict[str, str]:
    """Write query parameters; what is None is left out."""
    return {camel_case(name): _write(value) for name, value in parameters.items() if value is not None}


def write_timestamp(moment: datetime) -> str:
    """Write a deadline; raise ValueError for one without a time zone, which could mean any hour."""
    if moment.utcoffset() is None:
        raise ValueError("A deadline needs a time zone, for example datetime.now(timezone.utc).")
    return moment.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def read_timestamp(text: str) -> datetime:
    """Read an answer's timestamp (before 3.11 fromisoformat refuses `Z`, and fractions of other than 3 or 6 digits)."""
    whole, dot, fraction = text.removesuffix("Z").partition(".")
    moment = datetime.fromisoformat(whole + dot + (fraction.ljust(6, "0") if dot else ""))
    return moment.replace(tzinfo=timezone.utc)


def identifier(value: UUID | str) -> UUID:
    """Read an id; raise ValueError for what is none, so that it never becomes part of another address."""
    return value if isinstance(value, UUID) else UUID(value)


def _write(value: Value) -> str:
    return write_timestamp(value) if isinstance(value, datetime) else str(value)


def quote_segment(text: str) -> str:
    """Write one segment of a path."""
    return quote(text, safe="")
