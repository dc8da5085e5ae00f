"""What somebody said in a messaging network, apart from the attachments (`attachments.py`) that go with it."""

from dataclasses import dataclass, field

from shared.media.networks.payloads import has_unkeepable

MAX_MESSAGE_CHARACTERS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkMessage:
    """One message of a person, under the ids that its attachments have too."""

    message_id: str
    conversation_id: str | None
    text: str | None = field(repr=False)
    sender_id: str | None
    sender_name: str | None = None


def as_message_text(*values: object) -> str | None:
    """Give the first of these that is a text with something in it; None if none is."""
    for value in values:
        if isinstance(value, str) and value.strip() and not has_unkeepable(value):
            return value[:MAX_MESSAGE_CHARACTERS]
    return None
