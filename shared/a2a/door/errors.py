"""What the message door refuses."""

from shared.errors import DomainError, Kind


class MessageConflict(DomainError):
    """A message with this id was pushed before and says something else now."""

    code = "message_conflict"
    kind = Kind.CONFLICT
