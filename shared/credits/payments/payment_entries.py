"""Enter each payment event in the ledger once: a payment as a top-up, a refund as an adjustment.

The reference of a payment's entry is `<source>:<payment>`. So several events of one payment, and repeated events,
enter the payment once, at the exchange rate of the first event. A refund event states the total that was refunded
for the payment. The adjustment debits the same share of the payment's credits, less the amounts of earlier refunds.
"""

from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import Select, select, text

from shared.config.payment_sources import PaymentSource
from shared.credits.errors import PaymentUnknown, ReferenceConflict
from shared.credits.ledger import ADJUSTMENT, TOP_UP, adjust, top_up
from shared.credits.payments.payment_events import Payment, Refund, read_event
from shared.credits.tables import ledger_entries
from shared.db.database import Session
from shared.identity.access.authorization import OPERATOR
from shared.observability.telemetry import get_logger

log = get_logger(__name__)


class PaymentResult(StrEnum):
    """The result of a payment event."""

    CREDITED = "credited"
    REFUNDED = "refunded"
    REPEATED = "repeated"
    IGNORED = "ignored"


def enter_payment_event(session: Session, *, name: str, source: PaymentSource, event: Any) -> PaymentResult:
    """Enter an event of a payment source. The caller must have verified its signature.

    Raises PaymentNotUnderstood, PaymentUnknown, ResourceNotFound, ValidationFailed, BalanceOutOfRange.
    """
    parsed = read_event(source, event)
    match parsed:
        case Payment():
            return _credit(session, name, parsed)
        case Refund():
            return _take_back(session, name, parsed)
        case None:
            return PaymentResult.IGNORED


def _credit(session: Session, name: str, payment: Payment) -> PaymentResult:
    reference = f"{name}:{payment.id}"
    try:
        entered = top_up(
            session,
            organization_id=payment.organization_id,
            amount=payment.credits,
            reference=reference,
            actor=OPERATOR,
        )
    except ReferenceConflict:
        # Only log the difference: the first event decides, and a later rate must not change the entered amount.
        log.warning("payment.differs", reference=reference, organization_id=payment.organization_id)
        return PaymentResult.REPEATED
    return PaymentResult.REPEATED if entered.is_replayed else PaymentResult.CREDITED


def _take_back(session: Session, name: str, refund: Refund) -> PaymentResult:
    # Lock the balance first: without the lock, concurrent refunds of one payment would both debit the full
    # difference.
    session.execute(_LOCK, {"organization_id": str(refund.organization_id)})
    credited = _credited(session, refund.organization_id, f"{name}:{refund.payment_id}")
    if not credited:
        raise PaymentUnknown
    prefix = f"{name}:refund:{refund.payment_id}:"
    taken = _taken(session, refund.organization_id, prefix)
    owed = credited * refund.refunded // refund.paid - taken
    if owed <= 0:
        return PaymentResult.REPEATED
    adjust(
        session,
        organization_id=refund.organization_id,
        amount=-owed,
        reference=f"{prefix}{refund.refunded}",
        actor=OPERATOR,
    )
    return PaymentResult.REFUNDED


def _credited(session: Session, organization_id: UUID, reference: str) -> int:
    """Return the µcr that were entered for a payment, or 0."""
    found = _entries(organization_id, TOP_UP).where(ledger_entries.c.reference == reference)
    return sum(int(entry.amount) for entry in session.execute(found))


def _taken(session: Session, organization_id: UUID, prefix: str) -> int:
    """Return the µcr that refunds of a payment have debited."""
    # The prefix also matches a payment whose id begins with this payment's id. Skip entries whose reference does
    # not continue with a number.
    found = _entries(organization_id, ADJUSTMENT).where(
        ledger_entries.c.reference.startswith(prefix, autoescape=True)
    )
    return -sum(
        int(entry.amount)
        for entry in session.execute(found)
        if entry.reference.removeprefix(prefix).isdecimal()
    )


def _entries(organization_id: UUID, kind: str) -> Select[Any]:
    columns = ledger_entries.c
    return select(columns.reference, columns.amount).where(
        columns.organization_id == organization_id, columns.kind == kind
    )


_LOCK = text("SELECT FROM credit_balances WHERE organization_id = CAST(:organization_id AS uuid) FOR UPDATE")
