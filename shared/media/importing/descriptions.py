"""Normalize the description of an attachment, and hash it to recognize a repeated push.

An invalid id is refused. Other malformed fields are dropped, so that a user gets a file even if its name is malformed.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import replace

from shared.errors import FieldError, ValidationFailed
from shared.files.file_names import clean_file_name
from shared.files.idempotency import hash_request
from shared.media.attachments import Attachment

MAX_ID_CHARACTERS = 255
"""The longest id. Two ids of this length and the network fit into one entry of the unique index."""
MAX_LOCATION_CHARACTERS = 8192
SHA256_BYTES = 32

# The largest bigint of Postgres.
_MAXIMUM_BYTES = (1 << 63) - 1
_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_QUOTED = r'"[\t !#-\[\]-~]*"'
MEDIA_TYPE = rf"{_WORD}/{_WORD}([ \t]*;[ \t]*{_WORD}=({_QUOTED}|{_WORD}))*"
"""The pattern of a media type that a download's header may contain (RFC 9110, 8.3.1), without escapes."""
_MEDIA_TYPE = re.compile(rf"({MEDIA_TYPE})[ \t]*;?", re.ASCII)
_MAXIMUM_MEDIA_TYPE_LENGTH = 255


def normalize(attachment: Attachment) -> Attachment:
    """Return the attachment without its invalid fields. Raises ValidationFailed if an id or the location is invalid."""
    conversation_id = attachment.conversation_id
    return replace(
        attachment,
        message_id=_require_id("messageId", attachment.message_id),
        attachment_id=_require_id("attachmentId", attachment.attachment_id),
        location=_require_location(attachment.location),
        file_name=attachment.file_name and clean_file_name(attachment.file_name),
        media_type=read_media_type(attachment.media_type),
        size_bytes=_size(attachment.size_bytes),
        sha256=attachment.sha256 if len(attachment.sha256 or b"") == SHA256_BYTES else None,
        conversation_id=conversation_id if _is_id(conversation_id or "") else None,
    )


def read_media_type(text: str | None) -> str | None:
    """Return a media type with its type and subtype in lower case; None if the text is missing or malformed."""
    match = None
    if text is not None and len(text) <= _MAXIMUM_MEDIA_TYPE_LENGTH:
        match = _MEDIA_TYPE.fullmatch(text.strip(" \t"))
    if match is None:
        return None
    essence, separator, parameters = match[1].partition(";")
    # Do not change the case of the parameters: a boundary is case-sensitive.
    return essence.lower() + separator + parameters


def hash_description(attachment: Attachment) -> bytes:
    """Return a hash of an attachment's description, by which a repeated push is compared with the first."""
    return hash_request(
        location=dict(attachment.location),
        file_name=attachment.file_name,
        media_type=attachment.media_type,
        byte_size=attachment.size_bytes,
        sha256=attachment.sha256 and attachment.sha256.hex(),
        conversation_id=attachment.conversation_id,
    )


def _require_id(name: str, value: str) -> str:
    if not _is_id(value):
        message = f"must have 1 to {MAX_ID_CHARACTERS} characters, none of them a control character"
        raise ValidationFailed(errors=[FieldError(location="body", name=name, message=message)])
    return value


def _require_location(location: Mapping[str, str]) -> dict[str, str]:
    if any(len(value) > MAX_LOCATION_CHARACTERS or not _is_plain(value) for value in location.values()):
        message = f"must have at most {MAX_LOCATION_CHARACTERS} characters, none of them a control character"
        raise ValidationFailed(errors=[FieldError(location="body", name="url", message=message)])
    return dict(location)


def _is_id(value: str) -> bool:
    return 1 <= len(value) <= MAX_ID_CHARACTERS and _is_plain(value)


def _is_plain(value: str) -> bool:
    """Return whether Postgres can store a text and a log line can show it."""
    return not any(unicodedata.category(character) in ("Cc", "Cs") for character in value)


def _size(size_bytes: int | None) -> int | None:
    return size_bytes if size_bytes is not None and 0 <= size_bytes <= _MAXIMUM_BYTES else None
