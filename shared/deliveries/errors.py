"""What the outbox refuses."""

from shared.errors import DomainError, Kind


class DeliveryNotFound(DomainError):
    """There is no such delivery."""

    code = "delivery_not_found"
    kind = Kind.NOT_FOUND


class DeliveryNotDead(DomainError):
    """The delivery has arrived already; there is nothing left to send."""

    code = "delivery_not_dead"
    kind = Kind.CONFLICT


class DeliveryTooLarge(DomainError):
    """The message is too large to be delivered."""

    code = "delivery_too_large"
    kind = Kind.TOO_LARGE
