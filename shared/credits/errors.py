"""The errors of credits. The docstring of each class is the sentence that the client gets.

DomainError
├── InsufficientCredits, CreditPolicySuspended, BillingOrganizationRequired    no credits for a call
├── BudgetExceeded, RateLimitExceeded, ModelNotAllowed                         a limit forbids a call
├── StorageUnpaid                                                              no credits for storage
├── InvocationConflict, SettlementRefused                                      misuse of an invocation
├── ReferenceConflict, BalanceOutOfRange                                       a top-up cannot be entered
└── PaymentNotUnderstood, PaymentUnknown                                       a payment event cannot be entered
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from shared.credits.amounts import format_credits
from shared.errors import DomainError, Kind


class InsufficientCredits(DomainError):
    """The organization has too few credits for this call, or its grace period for unpaid storage is over.

    The response to a call contains the amounts `required`, `available` and `held`.
    """

    code = "insufficient_credits"
    kind = Kind.UNPAID

    def __init__(self, *, available: int, held: int, required: int) -> None:
        """Create the error from amounts in µcr. The response shows these amounts as decimal credits."""
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
    """The remaining budget of the key, user, identity or deployment is too small for this call.

    The response names the budget, its amounts `spent`, `held` and `remaining`, and the time of its reset, if any.
    """

    code = "budget_exceeded"
    kind = Kind.UNPAID


class RateLimitExceeded(DomainError):
    """The limit of requests or tokens per minute is reached. Retry after the time in `Retry-After`.

    A call that needs more tokens than the limit of a minute is never admitted; `x-should-retry` is then false.
    """

    code = "rate_limit_exceeded"
    kind = Kind.LIMITED


class ModelNotAllowed(DomainError):
    """This API key is not allowed to call this model."""

    code = "model_authorization_denied"
    kind = Kind.DENIED

    def __init__(self) -> None:
        super().__init__(param="model")


def over_budget(budget: Mapping[str, Any]) -> DomainError:
    """Return the error of the budget that refuses a call; `budget` holds the figures returned by `credits_hold`."""
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
        # A budget without a period never resets, so the response has no `Retry-After`.
        retry_after_seconds=max(1, budget["seconds"]) if resets_at else None,
        budget_id=budget["id"],
        **{name: budget[name] for name in ("subject_kind", "subject_id", "model", "unit", "period")},
        **shown,
        resets_at=resets_at and resets_at.isoformat().replace("+00:00", "Z"),
    )
    # A call that needs more than the whole budget can never succeed, so a retry is pointless.
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
    """The organization owes credits for storage and its grace period is over. Add credits to store new content."""

    code = "insufficient_credits"
    kind = Kind.UNPAID


class CreditPolicySuspended(DomainError):
    """The organization's spending is suspended. The side that suspended it, owner or operator, must resume it."""

    code = "credit_policy_suspended"
    kind = Kind.DENIED


class BillingOrganizationRequired(DomainError):
    """No organization pays for this call. Select an active organization, or use a key that is bound to one."""

    code = "billing_organization_required"
    kind = Kind.MALFORMED


class InvocationConflict(DomainError):
    """The invocation id was already used for another request."""

    code = "invocation_conflict"
    kind = Kind.CONFLICT


class SettlementRefused(DomainError):
    """The invocation was not dispatched to the worker that reports its outcome."""

    code = "settlement_refused"
    kind = Kind.CONFLICT


class ReferenceConflict(DomainError):
    """The reference already belongs to an entry with another amount. Use a new reference."""

    code = "reference_conflict"
    kind = Kind.CONFLICT


class PaymentNotUnderstood(DomainError):
    """The payment event lacks a valid organization, amount or currency."""

    code = "payment_not_understood"
    kind = Kind.INVALID


class PaymentUnknown(DomainError):
    """No credits were entered for the refunded payment. Send the event again after the payment's own event."""

    code = "payment_unknown"
    kind = Kind.CONFLICT


class BalanceOutOfRange(DomainError):
    """The resulting balance would be outside the range that can be stored exactly."""

    code = "balance_out_of_range"
    kind = Kind.INVALID
