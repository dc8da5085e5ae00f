"""What credits refuse.

DomainError
├── InsufficientCredits, CreditPolicySuspended, BillingOrganizationRequired    a call that cannot be paid
├── BudgetExceeded, RateLimitExceeded, ModelNotAllowed                         a call that a limit forbids
├── StorageUnpaid                                                              content that cannot be paid
├── InvocationConflict, SettlementRefused                                      an invocation used wrongly
└── ReferenceConflict, BalanceOutOfRange                                       a top-up that cannot be entered
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from shared.credits.amounts import format_credits
from shared.errors import DomainError, Kind


class InsufficientCredits(DomainError):
    """The organization has too few credits for this call, or owes for storage and its grace is over.

    A call names what is `required`, `available` and `held`.
    """

    code = "insufficient_credits"
    kind = Kind.UNPAID

    def __init__(self, *, available: int, held: int, required: int) -> None:
        """Take amounts in µcr; the answer shows them as decimal credits."""
        self.available = available
        self.held = held
        self.required = required
        super().__init__(
            f"This call needs up to {format_credits(required)} credits and the organization has"
            f" {format_credits(available)} available; {format_credits(held)} are held for calls in flight.",
            available=format_credits(available),
            held=format_credits(held),
            required=format_credits(required),
        )


class BudgetExceeded(DomainError):
    """A budget of the key, user, identity or deployment has too little left for this call.

    The answer names the budget, what is `spent`, `held` and `remaining` of it, and when it resets, if ever.
    """

    code = "budget_exceeded"
    kind = Kind.UNPAID


class RateLimitExceeded(DomainError):
    """The requests or tokens of this minute are used up; wait as long as `Retry-After` says.

    A call that needs more tokens than a minute has is never admitted, and `x-should-retry` is false.
    """

    code = "rate_limit_exceeded"
    kind = Kind.LIMITED


class ModelNotAllowed(DomainError):
    """This key may not call this model."""

    code = "model_authorization_denied"
    kind = Kind.DENIED

    def __init__(self) -> None:
        super().__init__(param="model")


def over_budget(budget: Mapping[str, Any]) -> DomainError:
    """Say which budget refuses a call, by the figures that the hold gave."""
    is_credits = budget["unit"] == "credits"
    remaining = max(0, budget["amount"] - budget["spent"] - budget["held"])
    figures: dict[str, int] = {name: budget[name] for name in ("amount", "spent", "held", "required")} | {
        "remaining": remaining
    }
    shown: dict[str, Any] = {
        name: format_credits(at) if is_credits else str(at) for name, at in figures.items()
    }
    resets_at = budget["resets_at"] and datetime.fromisoformat(budget["resets_at"]).astimezone(UTC)
    error = (BudgetExceeded if is_credits else RateLimitExceeded)(
        f"This call needs up to {shown['required']} {budget['unit']}; {_TERMS[budget['period']].format(**shown)} of the"
        f" {budget['subject_kind'].replace('_', ' ')} has {shown['remaining']} left.",
        retry_after_seconds=max(1, budget["seconds"]) if resets_at else None,
        budget_id=budget["id"],
        **{name: budget[name] for name in ("subject_kind", "subject_id", "model", "unit", "period")},
        **shown,
        resets_at=resets_at and resets_at.isoformat().replace("+00:00", "Z"),
    )
    error.is_final = budget["required"] > budget["amount"]
    return error


_TERMS = {
    "once": "the budget of {amount}",
    "minute": "the limit of {amount} a minute",
    "day": "the budget of {amount} a day",
    "week": "the budget of {amount} a week",
    "month": "the budget of {amount} a month",
}


class StorageUnpaid(DomainError):
    """The organization owes credits for storage and its grace is over; nothing more is stored until they are paid."""

    code = "insufficient_credits"
    kind = Kind.UNPAID


class CreditPolicySuspended(DomainError):
    """The organization's credit policy blocks usage; an administrator must review it."""

    code = "credit_policy_suspended"
    kind = Kind.DENIED


class BillingOrganizationRequired(DomainError):
    """No active organization is selected, and the credentials are not tied to one."""

    code = "billing_organization_required"
    kind = Kind.MALFORMED


class InvocationConflict(DomainError):
    """This invocation was made for another request."""

    code = "invocation_conflict"
    kind = Kind.CONFLICT


class SettlementRefused(DomainError):
    """This invocation was not dispatched to the worker that reports its outcome."""

    code = "settlement_refused"
    kind = Kind.CONFLICT


class ReferenceConflict(DomainError):
    """This reference stands for an entry of another amount; use a fresh one for a different amount."""

    code = "reference_conflict"
    kind = Kind.CONFLICT


class PaymentNotUnderstood(DomainError):
    """The event of a payment tells no organization, amount or currency that credits can be made of."""

    code = "payment_not_understood"
    kind = Kind.INVALID


class PaymentUnknown(DomainError):
    """No credits were entered for the payment that is refunded; send the event again once they are."""

    code = "payment_unknown"
    kind = Kind.CONFLICT


class BalanceOutOfRange(DomainError):
    """The balance would leave the range that can be kept exactly."""

    code = "balance_out_of_range"
    kind = Kind.INVALID
