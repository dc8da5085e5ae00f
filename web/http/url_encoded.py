"""Parse `application/x-www-form-urlencoded`: `name=value` pairs, joined by `&`, with `+` and `%` sequences."""

from urllib.parse import unquote_to_bytes

FORM = "application/x-www-form-urlencoded"


class TooManyFields(ValueError):
    """A form has more fields than allowed."""


class RepeatedField(ValueError):
    """A form has a field more than once."""


def read_fields(encoded: bytes, *, maximum: int) -> dict[str, str]:
    """Return the fields of a form. Empty values count as not sent.

    Raises TooManyFields, RepeatedField, UnicodeDecodeError.
    """
    pairs = [part.partition(b"=") for part in encoded.split(b"&") if part]
    # Before decoding: a form with a million fields must not cost anything.
    if len(pairs) > maximum:
        raise TooManyFields
    fields: dict[str, str] = {}
    for name, _, value in pairs:
        read = decode(name)
        # Which of the values is meant cannot be known.
        if read in fields:
            raise RepeatedField
        fields[read] = decode(value)
    return {name: value for name, value in fields.items() if value}


def decode(part: bytes) -> str:
    """Decode a name or a value. Raises UnicodeDecodeError."""
    return unquote_to_bytes(part.replace(b"+", b" ")).decode("utf-8")
