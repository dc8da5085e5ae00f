"""Parse the events of payment systems: payments and refunds. Other events are ignored.

Two formats are supported: Stripe's format, and a plain format for other systems
(docs/specification/credits.md#payments). Amounts are whole numbers of the currency's smallest unit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from shared.config.payment_sources import PaymentSource
from shared.credits.amounts import parse_credits
from shared.credits.errors import PaymentNotUnderstood

MAX_ID_CHARACTERS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment:
    """A payment for an organization's credits, in µcr."""

    id: str
    organization_id: UUID
    credits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refund:
    """The total amount refunded for a payment, and the paid amount, both in the currency's smallest unit."""

    payment_id: str
    organization_id: UUID
    paid: int
    refunded: int


def read_event(source: PaymentSource, event: Any) -> Payment | Refund | None:
    """Return an event's payment or refund, or None if the event is not about credits. Raises PaymentNotUnderstood."""
    return _read_stripe(source, event) if source.kind == "stripe" else _read_plain(source, event)


def _read_stripe(source: PaymentSource, event: Any) -> Payment | Refund | None:
    match event:
        case {
            "type": "checkout.session.completed" | "checkout.session.async_payment_succeeded",
            "data": {"object": {"payment_status": "paid"} as session},
        }:
            # Use the payment intent's id, so that the event of the intent and that of the session enter the payment
            # only once.
            payment_id = session.get("payment_intent") or session.get("id")
            return _payment(source, session, payment_id, session.get("amount_total"))
        case {"type": "payment_intent.succeeded", "data": {"object": dict() as intent}}:
            return _payment(source, intent, intent.get("id"), intent.get("amount_received"))
        case {"type": "charge.refunded", "data": {"object": dict() as charge}}:
            return _refund(charge, charge.get("payment_intent") or charge.get("id"))
    return None


def _read_plain(source: PaymentSource, event: Any) -> Payment | Refund | None:
    match event:
        case {"type": "payment.succeeded", "data": dict() as payment}:
            return _payment(source, payment, payment.get("id"), payment.get("amount"))
        case {"type": "payment.refunded", "data": dict() as payment}:
            return _refund(payment, payment.get("id"))
    return None


def _payment(
    source: PaymentSource, event_object: Mapping[str, Any], payment_id: object, paid: object
) -> Payment | None:
    metadata = _metadata(event_object)
    if metadata is None:
        return None
    given = metadata.get("credits")
    return Payment(
        id=_payment_id(payment_id),
        organization_id=_organization(metadata),
        credits=_worth(source, paid, event_object.get("currency")) if given is None else _credits(given),
    )


def _refund(event_object: Mapping[str, Any], payment_id: object) -> Refund | None:
    metadata = _metadata(event_object)
    if metadata is None:
        return None
    paid, refunded = _amount(event_object.get("amount")), _amount(event_object.get("amount_refunded"))
    if not 0 < refunded <= paid:
        raise PaymentNotUnderstood("The refunded amount must be more than 0 and at most the paid amount.")
    return Refund(
        payment_id=_payment_id(payment_id),
        organization_id=_organization(metadata),
        paid=paid,
        refunded=refunded,
    )


def _metadata(event_object: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the metadata if it has an `organization_id`, else None: the payment system may sell other products too."""
    metadata = event_object.get("metadata")
    return metadata if isinstance(metadata, dict) and "organization_id" in metadata else None


def _organization(metadata: Mapping[str, Any]) -> UUID:
    try:
        return UUID(str(metadata["organization_id"]))
    except ValueError:
        raise PaymentNotUnderstood("`organization_id` must be the id of an organization.") from None


def _payment_id(value: object) -> str:
    if isinstance(value, str) and 0 < len(value) <= MAX_ID_CHARACTERS and value.isprintable():
        return value
    raise PaymentNotUnderstood(f"The payment has no id of 1 to {MAX_ID_CHARACTERS} printable characters.")


def _amount(value: object) -> int:
    # Exclude booleans: JSON's `true` is an int in Python.
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise PaymentNotUnderstood("An amount must be a whole number of the currency's smallest unit.")


def _credits(given: object) -> int:
    try:
        return parse_credits(str(given))
    except ValueError as error:
        raise PaymentNotUnderstood(f"`credits` {error}.") from None


def _worth(source: PaymentSource, paid: object, currency: object) -> int:
    """Return the exact µcr for a paid amount, at the payment source's rate for the currency."""
    rate = source.credits_per_unit.get(str(currency).lower())
    if rate is None:
        raise PaymentNotUnderstood(f"The payment source has no rate for the currency {str(currency)[:10]!r}.")
    return _amount(paid) * parse_credits(rate)
