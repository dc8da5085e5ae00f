"""Read a request's query and JSON body strictly.

A value in a wrong format is refused before any rule of the domain applies. Malformed input gets 400.
Well-formed input with a wrong value gets 422. The error names every wrong field (RFC 9457 `errors`).
"""

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NoReturn, TypeVar
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from shared.errors import DomainError, FieldError, Kind, ValidationFailed
from web.http.wire_types import MALFORMED_ID

MAXIMUM_JSON_BYTES = 1 << 20
MAXIMUM_JSON_DEPTH = 64
MAXIMUM_JSON_CONTAINERS = 100_000
MAXIMUM_JSON_VALUES = 1_000_000
# If a request has more invalid values, do not list them: the list would cost too much.
MAXIMUM_FINDINGS = 20_000
# A key in an error message is cut to this number of characters.
SHOWN_CHARACTERS = 80
Shape = TypeVar("Shape", bound=BaseModel)
_NOT_JSON = (ValueError, RecursionError)
# Match each string as a whole, so that brackets and commas within it do not count.
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{},]', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class MalformedRequest(DomainError):
    """The request is malformed."""

    code = "malformed_request"
    kind = Kind.MALFORMED


class MalformedJson(DomainError):
    """The body is not the JSON object that this operation requires."""

    code = "malformed_json"
    kind = Kind.MALFORMED


class DuplicateParameter(DomainError):
    """A query parameter was sent more than once."""

    code = "duplicate_parameter"
    kind = Kind.MALFORMED


class UnknownParameter(DomainError):
    """The request contains a parameter that this operation does not accept."""

    code = "unknown_parameter"
    kind = Kind.MALFORMED


class FieldRequired(DomainError):
    """A required field is missing."""

    code = "field_required"
    kind = Kind.INVALID


class UnsupportedMediaType(DomainError):
    """This operation does not accept the body's media type."""

    code = "unsupported_media_type"
    kind = Kind.UNSUPPORTED_MEDIA_TYPE


def read_query(query_string: str, shape: type[Shape]) -> Shape:
    """Return the query as a model. Each parameter may occur once. Unknown parameters are refused."""
    values: dict[str, str] = {}
    for name, value in _pairs(query_string):
        # Refuse unknown parameters: with a misspelled filter, the list would otherwise return everything.
        if name not in wire_names(shape):
            raise UnknownParameter(errors=[_error("query", name, "is not a parameter of this operation")])
        if name in values:
            raise DuplicateParameter(errors=[_error("query", name, "was sent more than once")])
        values[name] = value
    try:
        return shape.model_validate(values)
    except ValidationError as error:
        refuse("query", error)


@cache
def wire_names(shape: type[BaseModel]) -> frozenset[str]:
    """Return the names of a model's fields as clients send them."""
    # Build the model first: pydantic assigns the aliases of a deferred model only when it builds the model.
    shape.model_rebuild()
    return frozenset(field.alias or name for name, field in shape.model_fields.items())


def refuse_query(query_string: str) -> None:
    """Refuse any query parameter. Operations without query parameters use this function."""
    for name, _ in _pairs(query_string):
        raise UnknownParameter(errors=[_error("query", name, "is not a parameter of this operation")])


def read_json(raw: bytes, shape: type[Shape], **numbers: Any) -> Shape:
    """Return a JSON body as a model. Refuse unknown fields.

    `numbers` and the other rules are those of `parse_json`.
    """
    try:
        return shape.model_validate(parse_json(raw, **numbers))
    except ValidationError as error:
        refuse("body", error)


def refuse(location: str, error: ValidationError) -> NoReturn:
    """Raise the error that fits pydantic's findings. The error names every invalid field."""
    found = findings(error)
    fields = [_error(location, ".".join(map(str, item["loc"])), item["msg"]) for item in found]
    kinds = {item["type"] for item in found}
    # An error has one code, so choose the most helpful kind of finding.
    if "extra_forbidden" in kinds:
        raise UnknownParameter(errors=fields)
    if "model_type" in kinds:
        raise MalformedJson(errors=fields)
    if MALFORMED_ID in kinds:
        raise MalformedRequest("An identifier in the request is malformed.", errors=fields)
    if "missing" in kinds:
        raise FieldRequired(errors=fields)
    raise ValidationFailed(errors=fields)


def findings(error: ValidationError) -> Sequence[ErrorDetails]:
    """Return pydantic's findings. Raises ValidationFailed if there are more than MAXIMUM_FINDINGS."""
    if error.error_count() > MAXIMUM_FINDINGS:
        raise ValidationFailed(f"More than {MAXIMUM_FINDINGS:,} values in the request are invalid.")
    return error.errors(include_url=False, include_context=False, include_input=False)


def parse_json(raw: bytes, **numbers: Any) -> Any:
    """Parse a JSON body strictly: UTF-8, no repeated key, no NaN, limited nesting and number of values.

    `numbers` are the standard library's `parse_int` and `parse_float`. Raises MalformedJson, which names the
    position.
    """
    try:
        text = raw.decode("utf-8")
        # Refuse a byte order mark: RFC 8259 8.1 forbids it, and parsers treat it differently.
        if text.startswith("\ufeff"):
            raise MalformedJson("The body begins with a byte order mark.")
        _bound(text)
        parsed = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant, **numbers)
        if _SURROGATE.search(text):
            # Fails for half of a surrogate pair, which could be neither stored nor sent in a response.
            json.dumps(parsed, ensure_ascii=False).encode()
        return parsed
    except _NOT_JSON as error:
        raise MalformedJson(_fault(error)) from None


def _fault(error: ValueError | RecursionError) -> str:
    """Return what is wrong with a body, and the position of the fault."""
    match error:
        case UnicodeDecodeError():
            return f"The body is not UTF-8: byte {error.start} does not begin a character."
        case UnicodeEncodeError():
            return "The body contains half of a surrogate pair."
        case json.JSONDecodeError():
            return f"The body is not JSON: {error.msg}, at line {error.lineno}, column {error.colno}."
        case ValueError():
            return f"The body is not JSON: {error}."
    return f"The body is nested deeper than {MAXIMUM_JSON_DEPTH} levels."


def _bound(text: str) -> None:
    """Check the nesting and the number of objects, arrays and values, before a parser creates any of them."""
    openers = text.count("[") + text.count("{")
    # Return early in the usual case: scanning the structure costs about as much as parsing.
    if openers <= MAXIMUM_JSON_DEPTH and text.count(",") <= MAXIMUM_JSON_VALUES:
        return
    depth = containers = values = 0
    for match in _STRUCTURE.finditer(text):
        character = match[0]
        if character == ",":
            values += 1
        elif character in "[{":
            depth, containers = depth + 1, containers + 1
        elif character in "]}":
            depth -= 1
        if depth > MAXIMUM_JSON_DEPTH:
            raise MalformedJson(f"The body is nested deeper than {MAXIMUM_JSON_DEPTH} levels.")
        if containers > MAXIMUM_JSON_CONTAINERS:
            raise MalformedJson(
                f"The body contains more than {MAXIMUM_JSON_CONTAINERS:,} objects and arrays."
            )
        if values > MAXIMUM_JSON_VALUES:
            raise MalformedJson(f"The body contains more than {MAXIMUM_JSON_VALUES:,} values.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Refuse a repeated key, because parsers disagree about which value counts.
    read = dict(pairs)
    if len(read) != len(pairs):
        twice = _first_repeated(name for name, _ in pairs)
        raise ValueError(f"the key {json.dumps(twice[:SHOWN_CHARACTERS])} is repeated in an object")
    return read


def _first_repeated(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    raise ValueError("no name is repeated")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _pairs(query_string: str) -> Iterable[tuple[str, str]]:
    """Yield the parameters of a query in the format of HTML forms. `;` does not separate parameters.

    Raises MalformedRequest.
    """
    if not query_string:
        return
    for part in query_string.split("&"):
        name, _, value = part.partition("=")
        try:
            yield _decode(name), _decode(value)
        except UnicodeDecodeError:
            raise MalformedRequest("The query is not UTF-8.") from None


def _decode(part: str) -> str:
    return unquote_to_bytes(part.replace("+", " ")).decode("utf-8")


def _error(location: str, name: str, message: str) -> FieldError:
    return FieldError(location=location, name=name, message=message)
