"""Types of single values on the wire. Each type accepts exactly one format, and has an OpenAPI description.

Pydantic alone accepts `0` as 1970, `1_20` as 120 and braces around a UUID, and truncates a seventh fraction
digit. Clients would come to depend on each of these formats.
"""

import re
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import no_info_after_validator_function, no_info_before_validator_function

_ID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}", re.ASCII)
_COUNT = re.compile(r"0|[1-9]\d{0,18}", re.ASCII)
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|\+00:00)", re.ASCII)
MAXIMUM_COUNT = (1 << 63) - 1
MALFORMED_ID = "malformed_id"


def parse_id(value: object) -> UUID:
    """Return a UUID in its hyphenated form."""
    if isinstance(value, UUID):
        return value
    if isinstance(value, str) and _ID.fullmatch(value):
        return UUID(value)
    raise PydanticCustomError(MALFORMED_ID, "must be a UUID of the form 8-4-4-4-12 hexadecimal digits")


def parse_count(value: object) -> int:
    """Return a whole number from 0 to 2^63 - 1, from JSON or from plain decimal digits in a query."""
    # Refuse `True`: it is an int in Python, but not in JSON.
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAXIMUM_COUNT:
        return value
    if isinstance(value, str) and _COUNT.fullmatch(value) and int(value) <= MAXIMUM_COUNT:
        return int(value)
    raise PydanticCustomError(
        "count", "must be a whole number from 0 to 9223372036854775807, in plain digits"
    )


def parse_json_count(value: object) -> int:
    """Return a whole number from JSON, which must not be a string."""
    if isinstance(value, str):
        raise PydanticCustomError("count", "must be a number, not a string")
    return parse_count(value)


def parse_instant(value: object) -> datetime:
    """Return an RFC 3339 time in UTC with at most six fractional digits."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, str) and _INSTANT.fullmatch(value):
        try:
            return datetime.fromisoformat(value)
        # The format is right, but the date does not exist.
        except ValueError:
            pass
    raise PydanticCustomError(
        "instant", "must be a UTC time such as 2030-01-31T12:00:00Z, with at most six fractional digits"
    )


def render_instant(value: datetime) -> str:
    """Return a time as RFC 3339 UTC with `Z`. A fraction of zero is omitted."""
    return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def parse_text(value: object) -> str:
    """Return text that contains no control characters and no lone surrogates."""
    if not isinstance(value, str):
        raise PydanticCustomError("text", "must be a string")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in value):
        raise PydanticCustomError("text", "must not contain control characters")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Marks a string as text of a limited length without control characters."""

    minimum: int
    maximum: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_before_validator_function(self._parse, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {
            "type": "string",
            "minLength": self.minimum,
            "maxLength": self.maximum,
            "pattern": r"^[^\u0000-\u001f\u007f-\u009f]*$",
        }

    def _parse(self, value: object) -> str:
        read = parse_text(value)
        if not self.minimum <= len(read) <= self.maximum:
            raise PydanticCustomError("text_length", f"must have {self.minimum} to {self.maximum} characters")
        return read


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """Limits a count to a range, and to multiples of `step`."""

    minimum: int
    maximum: int
    step: int = 1

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        described = {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}
        return described if self.step == 1 else described | {"multipleOf": self.step}

    def _check(self, value: int) -> int:
        if not self.minimum <= value <= self.maximum:
            raise PydanticCustomError("count_range", f"must be from {self.minimum} to {self.maximum}")
        if value % self.step:
            raise PydanticCustomError("count_step", f"must be a multiple of {self.step}")
        return value


Id = Annotated[UUID, BeforeValidator(parse_id), WithJsonSchema({"type": "string", "format": "uuid"})]
Count = Annotated[
    int,
    BeforeValidator(parse_count),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MAXIMUM_COUNT, "format": "int64"}),
]
JsonCount = Annotated[
    int,
    BeforeValidator(parse_json_count),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": MAXIMUM_COUNT, "format": "int64"}),
]
UtcTime = Annotated[
    datetime,
    BeforeValidator(parse_instant),
    PlainSerializer(render_instant, when_used="json"),
    WithJsonSchema(
        {
            "type": "string",
            "format": "date-time",
            "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|\+00:00)$",
        }
    ),
]
Name = Annotated[str, Text(minimum=1, maximum=200)]


class CamelModel(BaseModel):
    """A JSON object of the API, with camelCase keys. Unknown keys are refused."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        strict=True,
        # A process never needs most validators, and building all of them takes 3 MiB, so build them on
        # demand.
        defer_build=True,
    )


class RequestModel(CamelModel):
    """A model of query parameters or of a JSON body. It reads the wire's names only, not Python's."""

    model_config = ConfigDict(populate_by_name=False)


class SnakeModel(CamelModel):
    """A JSON object below `/v1`, with OpenAI's snake_case keys."""

    model_config = ConfigDict(alias_generator=None)


class SnakeRequestModel(SnakeModel):
    """A model of what clients send below `/v1`."""
