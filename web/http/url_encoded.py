"""Parse `application/x-www-form-urlencoded`: `name=value` pairs, joined by `&`, with `+` and `%` sequences."""

from urllib.parse import unquote_to_bytes

FORM = "application/x-www-form-urlencoded"


class TooManyFields(ValueError):
    """A form has more fields than allowed."""


class RepeatedField(ValueError):
    """A form has a field more than once."""


def read_fields(encoded: bytes, *, maximum: int) -> dict[str, str]:
    """Return the fields of a form. A field with an empty value counts as not sent.

    Raises TooManyFields, RepeatedField, UnicodeDecodeError.
    """
    pairs = [part.partition(b"=") for part in encoded.split(b"&") if part]
    # Check before decoding: a form with a million fields must cost little.
    if len(pairs) > maximum:
        raise TooManyFields
    fields: dict[str, str] = {}
    for name, _, value in pairs:
        read = decode(name)
        # Refuse a repeated field: the service cannot know which value the client meant.
        if read in fields:
            raise RepeatedField
        fields[read] = decode(value)
    return {name: value for name, value in fields.items() if value}


def decode(part: bytes) -> str:
    """Decode a form field's name or value. Raises UnicodeDecodeError."""
    return unquote_to_bytes(part.replace(b"+", b" ")).decode("utf-8")
