"""Take the right to make a call, and charge the call for what became of it: the two ends of every execution.

Code that calls a provider, in answer to a client (`execution`) or for an agent, settles here, so that one rule holds
(docs/specification/models.md#calls): a call is charged by what its provider reported, else by an estimate of what it
delivered, which says that it is one; a call that brought neither costs nothing, however it ended. Both steps are
retried while the database is away; after that the sweeps of `shared/credits` decide, by the same rule.
"""

from __future__ import annotations

from uuid import UUID, uuid4

from shared.credits import holds, settlement
from shared.credits.prices import TokenCounts
from shared.credits.settlement import Outcome, Status
from shared.database import Database
from shared.errors import DomainError, Unavailable
from shared.models.dialects import Translator
from shared.models.providers.errors import CallCancelled, ProviderError
from shared.retry import retry
from shared.telemetry import get_logger

log = get_logger(__name__)

NOTHING = TokenCounts(prompt_tokens=0, completion_tokens=0)


def take_dispatch(database: Database, invocation_id: UUID) -> holds.Dispatch | None:
    """Take the right to call, retrying while the database is away; None means never to make this call."""
    token = uuid4()

    def dispatch() -> holds.Dispatch | None:
        with database.autocommit() as session:
            return holds.dispatch(session, invocation_id, token=token)

    try:
        return retry(dispatch)
    except Unavailable:
        log.warning("invocation.not_dispatched", invocation_id=invocation_id)
        return None


def settle(database: Database, dispatch: holds.Dispatch, outcome: Outcome) -> None:
    """Charge the call, retrying while the database is away; after that the sweep of open dispatches does."""

    def settle_once() -> None:
        with database.autocommit() as session:
            settlement.settle(session, dispatch.invocation_id, dispatch.token, outcome)

    try:
        retry(settle_once)
    except Unavailable:
        log.warning("invocation.not_settled", invocation_id=dispatch.invocation_id)


def measured(translator: Translator, provider: str | None) -> Outcome:
    """Say what a reply that ended is to be charged."""
    counts, is_estimated = translator.settled_usage()
    return Outcome(
        status=Status(translator.status),
        counts=TokenCounts(
            prompt_tokens=counts.prompt_tokens,
            completion_tokens=counts.completion_tokens,
            cached_tokens=counts.cached_tokens,
            reasoning_tokens=counts.reasoning_tokens,
        ),
        is_estimated=is_estimated,
        provider=provider,
    )


def outcome_of_failure(
    error: DomainError, translator: Translator | None, provider: str | None
) -> tuple[Outcome, list[bytes]]:
    """Say what a failed or cancelled call is to be charged, and which frames end its stream."""
    status = Status.CANCELLED if isinstance(error, CallCancelled) else Status.FAILED
    if provider is None and isinstance(error, ProviderError):
        provider = error.provider
    if translator is None or not translator.has_started:
        return Outcome(status=status, counts=NOTHING, provider=provider), []
    frames = translator.fail(error.code, error.detail)
    ended = measured(translator, provider)
    return Outcome(
        status=status, counts=ended.counts, is_estimated=ended.is_estimated, provider=provider
    ), frames
