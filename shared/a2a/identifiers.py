"""The identifiers that clients choose or repeat: any text of a sane length, and our own where only those can be."""

import unicodedata
from uuid import UUID

from shared.a2a.errors import InvalidParams
from shared.errors import FieldError

MAXIMUM_CHARACTERS = 255


def check_identifier(name: str, value: str, *, location: str = "body") -> str:
    """Give an identifier that a client chose. Raises InvalidParams for an empty, long or unprintable one."""
    if not is_identifier(value):
        message = f"must have 1 to {MAXIMUM_CHARACTERS} characters, none of them a control character"
        raise InvalidParams(errors=[FieldError(location=location, name=name, message=message)])
    return value


def is_identifier(value: str) -> bool:
    """Tell whether anything could be called this."""
    is_sane = all(unicodedata.category(character) not in ("Cc", "Cs") for character in value)
    return 1 <= len(value) <= MAXIMUM_CHARACTERS and is_sane


def find_task_id(value: str) -> UUID | None:
    """Read a task's id as we write them; any other text names no task."""
    try:
        read = UUID(value)
    except ValueError:
        return None
    return read if str(read) == value.lower() else None
