"""A message of a person in a messaging network, without its attachments (`attachments.py`)."""

from dataclasses import dataclass, field

from shared.media.networks.payloads import has_unkeepable

MAX_MESSAGE_CHARACTERS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkMessage:
    """One message of a person, under the same ids as its attachments."""

    message_id: str
    conversation_id: str | None
    text: str | None = field(repr=False)
    sender_id: str | None
    sender_name: str | None = None


def as_message_text(*values: object) -> str | None:
    """Return the first value that is a non-blank text, truncated to the limit; None if there is none."""
    for value in values:
        if isinstance(value, str) and value.strip() and not has_unkeepable(value):
            return value[:MAX_MESSAGE_CHARACTERS]
    return None
