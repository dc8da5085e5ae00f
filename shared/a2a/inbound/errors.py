"""The errors of inbound messages."""

from shared.errors import DomainError, Kind


class MessageConflict(DomainError):
    """A message with this id was pushed before with other content. Push the new content under another id."""

    code = "message_conflict"
    kind = Kind.CONFLICT


class MessageRefused(DomainError):
    """The message was accepted, but could not be sent to the agent; its record has the reason."""

    code = "message_refused"
    kind = Kind.CONFLICT


class TooManyMessages(DomainError):
    """This distribution has reached its limit of pending messages. Retry after some of them have been routed."""

    code = "too_many_messages"
    kind = Kind.LIMITED

    def __init__(self) -> None:
        super().__init__(retry_after_seconds=5)
