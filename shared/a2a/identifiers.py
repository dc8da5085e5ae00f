"""Check identifiers that clients send. An identifier is printable text of limited length; a task id is a UUID."""

import unicodedata
from uuid import UUID

from shared.a2a.errors import InvalidParams
from shared.errors import FieldError

MAXIMUM_CHARACTERS = 255


def check_identifier(name: str, value: str, *, location: str = "body") -> str:
    """Return an identifier that a client chose. Raises InvalidParams if it is empty, too long or unprintable."""
    if not is_identifier(value):
        message = f"must have 1 to {MAXIMUM_CHARACTERS} characters, none of them a control character"
        raise InvalidParams(errors=[FieldError(location=location, name=name, message=message)])
    return value


def is_identifier(value: str) -> bool:
    """Return whether a text is a valid identifier."""
    # Control characters and lone surrogates cannot be stored or logged.
    is_sane = all(unicodedata.category(character) not in ("Cc", "Cs") for character in value)
    return 1 <= len(value) <= MAXIMUM_CHARACTERS and is_sane


def find_task_id(value: str) -> UUID | None:
    """Return the task id in a text, or None if the text is not a UUID in the form that this service writes."""
    try:
        read = UUID(value)
    except ValueError:
        return None
    return read if str(read) == value.lower() else None
