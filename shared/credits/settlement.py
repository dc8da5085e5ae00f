"""Settle a dispatched call: charge its actual cost and release its hold. Settling a call again charges nothing.

The actual cost is charged even above the hold. If the provider reported no counts, they are estimated; one later
correction can replace the estimated counts by exact ones.
"""

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from shared import failpoints
from shared.credits.errors import SettlementRefused
from shared.credits.prices import TokenCounts
from shared.credits.sql_functions import call
from shared.db.database import Session
from shared.observability.telemetry import get_logger

log = get_logger(__name__)


class Status(StrEnum):
    """How a call ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a dispatched call.

    `counts` are the provider's, or the worker's estimate if `is_estimated`. If they are None, the estimated prompt
    tokens and the streamed tokens of the last `renew` are charged.
    """

    status: Status
    counts: TokenCounts | None
    is_estimated: bool = False
    provider: str | None = None


class Effect(StrEnum):
    """The effect of a settlement: what changed in the ledger and the usage record."""

    SETTLED = "settled"
    CORRECTED = "corrected"
    REPEATED = "repeated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """The cost charged for a call and the balance after it, in µcr."""

    effect: Effect
    cost: int
    is_estimated: bool
    balance: int


def settle(session: Session, invocation_id: UUID, token: UUID, outcome: Outcome) -> Settlement:
    """End a dispatched invocation and charge it. Raises SettlementRefused for the token of another dispatch.

    A settlement can be repeated at any time. If a sweep has settled the call by estimate, the first exact counts
    correct the charge.
    """
    counts = _plausible_counts(invocation_id, outcome.counts)
    row = call(
        session,
        "credits_settle",
        id=invocation_id,
        token=token,
        status=outcome.status.value,
        provider=outcome.provider,
        prompt_tokens=counts.prompt_tokens if counts else None,
        completion_tokens=counts.completion_tokens if counts else None,
        cached_tokens=counts.cached_tokens if counts else 0,
        cache_write_tokens=counts.cache_write_tokens if counts else 0,
        reasoning_tokens=counts.reasoning_tokens if counts else 0,
        is_estimated=outcome.is_estimated,
    )
    failpoints.hit("credits.settled")
    if row is None or row.result == "refused":
        raise SettlementRefused
    return Settlement(
        effect=Effect(row.result), cost=row.cost, is_estimated=row.is_estimated, balance=row.balance
    )


def _plausible_counts(invocation_id: UUID, counts: TokenCounts | None) -> TokenCounts | None:
    if counts is None or counts.is_plausible:
        return counts
    # Implausible counts are a provider's error and could charge an absurd amount, so charge the call by estimate.
    log.warning("credits.counts_implausible", invocation_id=invocation_id)
    return None
