"""Building blocks of request schemas. A check is a function that takes one value and raises `Wrong` if it is invalid.

A check refuses a wrong type. It accepts unknown fields, because OpenAI adds fields to its dialects, and an upstream may
know a new field before this service does. Each check has a JSON Schema (`schema_of`) for the API documents.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from shared.models.errors import InvalidRequest

Check = Callable[[Any], None]
Schema = dict[str, Any]
_SCHEMAS: dict[Check, Schema] = {}


class Wrong(Exception):
    """A value does not match its schema. Each enclosing object or list adds its key or index to the path."""

    def __init__(self, message: str, *steps: str) -> None:
        super().__init__(message)
        self.message = message
        self.steps = list(steps)


def check_body(body: Any, shape: Check) -> None:
    """Check a whole body. If it is invalid, raises InvalidRequest with `param` in OpenAI's form (`tools[0].type`)."""
    try:
        shape(body)
    except Wrong as wrong:
        param = "".join(reversed(wrong.steps)).lstrip(".") or None
        raise InvalidRequest(f"{param or 'The body'} {wrong.message}.", param=param) from None


def described(check: Check, schema: Schema) -> Check:
    """Register a JSON Schema for a check. Return the check."""
    _SCHEMAS[check] = schema
    return check


def schema_of(check: Check) -> Schema:
    """Return the JSON Schema of a check. Without a registered schema, return `{}`, which allows any value."""
    return _SCHEMAS.get(check, {})


def anything(value: Any) -> None:
    """Accept any value."""


def string(value: Any) -> None:
    """Accept a string."""
    if not isinstance(value, str):
        raise Wrong("must be a string")


def boolean(value: Any) -> None:
    """Accept true and false."""
    if not isinstance(value, bool):
        raise Wrong("must be a boolean")


described(string, {"type": "string"})
described(boolean, {"type": "boolean"})


def integer(minimum: int | None = None, maximum: int | None = None) -> Check:
    """Return a check for a whole number within the bounds."""

    def check(value: Any) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            raise Wrong("must be an integer")
        _check_bounds(value, minimum, maximum)

    return described(check, _bounded("integer", minimum, maximum))


def number(minimum: float | None = None, maximum: float | None = None) -> Check:
    """Return a check for a number within the bounds."""

    def check(value: Any) -> None:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise Wrong("must be a number")
        _check_bounds(value, minimum, maximum)

    return described(check, _bounded("number", minimum, maximum))


def one_of(*words: str) -> Check:
    """Return a check for one of a closed set of words."""

    def check(value: Any) -> None:
        if not isinstance(value, str) or value not in words:
            raise Wrong(f"must be one of {', '.join(words)}")

    return described(check, {"type": "string", "enum": list(words)})


def nullable(check: Check) -> Check:
    """Return a check that also accepts null."""
    return described(lambda value: None if value is None else check(value), _or_null(check))


def list_of(item: Check, *, at_least: int = 0) -> Check:
    """Return a check for a list of items that the check `item` accepts."""

    def check(value: Any) -> None:
        if not isinstance(value, list):
            raise Wrong("must be a list")
        if len(value) < at_least:
            raise Wrong("must not be empty")
        for index, element in enumerate(value):
            try:
                item(element)
            except Wrong as wrong:
                wrong.steps.append(f"[{index}]")
                raise

    return described(check, {"type": "array", "items": schema_of(item), "minItems": at_least})


def object_of(fields: Mapping[str, Check], *, required: Collection[str] = ()) -> Check:
    """Return a check for an object with these fields. Other fields are accepted; an optional field may be null."""

    def check(value: Any) -> None:
        if not isinstance(value, dict):
            raise Wrong("must be an object")
        for name in required:
            if name not in value:
                raise Wrong("is required", f".{name}")
        for name, element in value.items():
            if name in fields and (element is not None or name in required):
                _check_field(name, element, fields[name])

    properties = {
        name: schema_of(field) if name in required else _or_null(field) for name, field in fields.items()
    }
    return described(check, {"type": "object", "properties": properties, "required": [*required]})


def map_of(item: Check) -> Check:
    """Return a check for an object with any field names and with values that the check `item` accepts."""

    def check(value: Any) -> None:
        if not isinstance(value, dict):
            raise Wrong("must be an object")
        for name, element in value.items():
            _check_field(name, element, item)

    return described(check, {"type": "object", "additionalProperties": schema_of(item)})


def tagged(key: str, variants: Mapping[str, Check], *, otherwise: Check | None = None) -> Check:
    """Return a check for an object in which the value of `key` selects the schema. Unknown values need `otherwise`."""

    def check(value: Any) -> None:
        if not isinstance(value, dict):
            raise Wrong("must be an object")
        tag = value.get(key)
        if not isinstance(tag, str):
            raise Wrong("is required" if tag is None else "must be a string", f".{key}")
        chosen = variants.get(tag, otherwise)
        if chosen is None:
            raise Wrong(f"must be one of {', '.join(variants)}", f".{key}")
        chosen(value)

    tags = [_tagged(key, {"const": tag}, variant) for tag, variant in variants.items()]
    if otherwise is not None:
        tags.append(_tagged(key, {"type": "string", "not": {"enum": [*variants]}}, otherwise))
    return described(check, {"anyOf": tags})


def text_or(check: Check) -> Check:
    """Return a check for a string or a value that the other check accepts."""
    schema = {"anyOf": [schema_of(string), schema_of(check)]}
    return described(lambda value: None if isinstance(value, str) else check(value), schema)


def word_or(check: Check, *words: str) -> Check:
    """Return a check for one of the words, or an object that the other check accepts."""
    word = one_of(*words)
    schema = {"anyOf": [schema_of(word), schema_of(check)]}
    return described(lambda value: check(value) if isinstance(value, dict) else word(value), schema)


def _bounded(kind: str, minimum: float | None, maximum: float | None) -> Schema:
    bounds = {"minimum": minimum, "maximum": maximum}
    return {"type": kind, **{name: bound for name, bound in bounds.items() if bound is not None}}


def _or_null(check: Check) -> Schema:
    schema = schema_of(check)
    return {"anyOf": [schema, {"type": "null"}]} if schema else {}


def _tagged(key: str, tag: Schema, variant: Check) -> Schema:
    """Return the JSON Schema of a variant, with the tag as a required field."""
    schema = {"type": "object", "properties": {}, "required": [], **schema_of(variant)}
    required = dict.fromkeys([key, *schema["required"]])
    return {**schema, "properties": {**schema["properties"], key: tag}, "required": [*required]}


def _check_field(name: str, value: Any, check: Check) -> None:
    try:
        check(value)
    except Wrong as wrong:
        wrong.steps.append(f".{name}")
        raise


def _check_bounds(value: float, minimum: float | None, maximum: float | None) -> None:
    # Negate the comparisons, so that NaN, which Python's JSON parser accepts, is refused.
    if minimum is not None and not value >= minimum:
        raise Wrong(f"must be at least {minimum}")
    if maximum is not None and not value <= maximum:
        raise Wrong(f"must be at most {maximum}")
