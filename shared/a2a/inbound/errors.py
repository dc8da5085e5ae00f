"""What the message door refuses."""

from shared.errors import DomainError, Kind


class MessageConflict(DomainError):
    """A message with this id was pushed before and says something else now."""

    code = "message_conflict"
    kind = Kind.CONFLICT


class MessageRefused(DomainError):
    """The agent could not be sent this message after it had been taken; its record says why."""

    code = "message_refused"
    kind = Kind.CONFLICT


class TooManyMessages(DomainError):
    """Too many messages of this distribution are waiting; push again when some have been routed."""

    code = "too_many_messages"
    kind = Kind.LIMITED

    def __init__(self) -> None:
        super().__init__(retry_after_seconds=5)
