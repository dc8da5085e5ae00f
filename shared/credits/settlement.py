"""Charge a call for what it consumed, however it ended; settling twice charges once.

The actual cost is charged even above the hold: what a provider reported is owed. Where it reported nothing the counts
are estimated, and one later correction may replace them by exact counts.
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
    """What became of a dispatched call.

    `counts` are the provider's, or the worker's estimate if `is_estimated`. None means that nothing is known: the
    prompt's estimate and what `renew` last said are charged.
    """

    status: Status
    counts: TokenCounts | None
    is_estimated: bool = False
    provider: str | None = None


class Effect(StrEnum):
    """What a settlement did."""

    SETTLED = "settled"
    CORRECTED = "corrected"
    REPEATED = "repeated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What was charged for a call, and the balance after it; amounts in µcr."""

    effect: Effect
    cost: int
    is_estimated: bool
    balance: int


def settle(session: Session, invocation_id: UUID, token: UUID, outcome: Outcome) -> Settlement:
    """End a dispatched invocation and charge it; raises SettlementRefused for a token not of its dispatch.

    Safe to repeat, however late: it corrects, once, what was settled by estimate meanwhile.
    """
    counts = _believable(invocation_id, outcome.counts)
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


def _believable(invocation_id: UUID, counts: TokenCounts | None) -> TokenCounts | None:
    if counts is None or counts.is_plausible:
        return counts
    log.warning("credits.counts_implausible", invocation_id=invocation_id)
    return None
