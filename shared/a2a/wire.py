"""Read and write the protocol's objects in JSON.

The reader is lenient: it accepts camelCase and snake_case, reads `null` as absent, and ignores unknown members. The
writer is strict: it writes camelCase, no unknown members, no nulls and no empty lists. `metadata` and data parts pass
through unchanged (`exact_json.py`). Write objects with `to_wire` and `render`, not with pydantic.
"""

import base64
import binascii
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    PlainSerializer,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

Metadata = dict[str, Any]


def _decode_base64(value: object) -> object:
    """Return the bytes of base64 in either alphabet, with or without padding, as protobuf's JSON allows."""
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(
            value.rstrip("=") + "=" * (-len(value.rstrip("=")) % 4), _alphabet(value), validate=True
        )
    except (binascii.Error, ValueError):
        raise PydanticCustomError("base64", "must be base64") from None


def _alphabet(value: str) -> bytes | None:
    return b"-_" if "-" in value or "_" in value else None


def _read_instant(value: object) -> object:
    if isinstance(value, str):
        with suppress(
            ValueError, OverflowError
        ):  # UTC has no value for some times of the first and the last day
            read = datetime.fromisoformat(value)
            # Refuse dates without a time, which `fromisoformat` also accepts: a date is not an instant.
            if read.tzinfo is not None and "T" in value:
                return read.astimezone(UTC)
        raise PydanticCustomError(
            "instant", "must be an ISO 8601 time with its offset, such as 2030-01-31T12:00:00Z"
        )
    return value


def render_instant(value: datetime) -> str:
    """Return a time as ISO 8601 in UTC with milliseconds."""
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _encode_base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


Identifier = Annotated[str, StringConstraints(min_length=1)]
Base64 = Annotated[
    bytes,
    BeforeValidator(_decode_base64),
    PlainSerializer(_encode_base64),
    WithJsonSchema({"type": "string", "contentEncoding": "base64"}),
]
Instant = Annotated[
    datetime, BeforeValidator(_read_instant), WithJsonSchema({"type": "string", "format": "date-time"})
]
ABSENT_AS_EMPTY = BeforeValidator(lambda value: () if value is None else value)
# Validation of a client's list stops at the first mistake: to report all mistakes would cost the service a hundred
# times more than the list costs its sender.
Uris = Annotated[tuple[str, ...], FailFast(), ABSENT_AS_EMPTY]


class A2A(BaseModel):
    """An object of the protocol."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, protected_namespaces=()
    )

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object, for `exact_json.render`."""
        members = ((name, self.wire_name(name), getattr(self, name)) for name in type(self).model_fields)
        return {key: _wired(value) for name, key, value in members if self.is_present(name, value)}

    def is_present(self, name: str, value: object) -> bool:
        """Return whether a field is written."""
        # Required lists are written even if they are empty.
        return value is not None and (value != () or self._is_required(name))

    @classmethod
    def wire_name(cls, name: str) -> str:
        """Return a field's name in JSON."""
        return cls.model_fields[name].alias or name

    @classmethod
    def _is_required(cls, name: str) -> bool:
        return cls.model_fields[name].is_required()


def _wired(value: object) -> Any:
    if isinstance(value, A2A):
        return value.to_wire()
    if isinstance(value, tuple):
        return [_wired(item) for item in value]
    if isinstance(value, Mapping):
        return value
    if isinstance(value, bytes):
        return _encode_base64(value)
    if isinstance(value, datetime):
        return render_instant(value)
    return value.value if isinstance(value, Enum) else value
