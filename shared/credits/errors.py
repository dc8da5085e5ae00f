"""What credits refuse.

DomainError
├── InsufficientCredits, CreditPolicySuspended, BillingOrganizationRequired    a call that cannot be paid
├── StorageUnpaid                                                              content that cannot be paid
├── InvocationConflict, SettlementRefused                                      an invocation used wrongly
└── ReferenceConflict, BalanceOutOfRange                                       a top-up that cannot be entered
"""

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


class BalanceOutOfRange(DomainError):
    """The balance would leave the range that can be kept exactly."""

    code = "balance_out_of_range"
    kind = Kind.INVALID
