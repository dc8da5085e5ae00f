"""The outbox's errors."""

from shared.errors import DomainError, Kind


class DeliveryNotFound(DomainError):
    """There is no such delivery."""

    code = "delivery_not_found"
    kind = Kind.NOT_FOUND


class DeliveryNotDead(DomainError):
    """The delivery has already arrived. There is nothing to send again."""

    code = "delivery_not_dead"
    kind = Kind.CONFLICT


class DeliveryTooLarge(DomainError):
    """The message is larger than the outbox accepts."""

    code = "delivery_too_large"
    kind = Kind.TOO_LARGE
