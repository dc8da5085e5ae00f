"""Charge the calls of a process, and keep what Postgres could not take in time, for as long as the process lives.

A provider's report is known to the worker that made the call and to nobody else. So an outcome that is not taken
within `SETTLE_SECONDS` is tried again in the background until it is, or the process has to end. Settling is safe to
repeat, and corrects what a sweep has charged by estimate meanwhile (`shared/credits/settlement.py`): the lease of the
call need not be kept. What is lost with a process that is killed is bounded by its calls that had ended since Postgres
went away (docs/specification/credits.md#holds).
"""

import time
from dataclasses import dataclass
from functools import cache, partial
from uuid import UUID

from prometheus_client import Counter

from shared.credits import settlement
from shared.credits.amounts import MICRO
from shared.credits.holds import Dispatch
from shared.credits.settlement import Outcome, Settlement
from shared.db.database import Database
from shared.errors import DomainError
from shared.observability.telemetry import MODEL_CALLS, MODEL_CREDITS, MODEL_TOKENS, get_logger
from shared.runtime.periodic_thread import PeriodicThread
from shared.runtime.retry import is_transient, retry

log = get_logger(__name__)

SETTLE_SECONDS = 20.0
"""How long the end of a reply waits for its charge: longer than a database takes to restart."""
RETRY_SECONDS = 1.0
SHUTDOWN_SECONDS = 25.0
"""How long after it was asked to stop a process still settles: a little less than the patience of who asks."""
MAX_PENDING = 10_000
"""Outcomes that one process keeps; more than it has threads, and no call begins without Postgres."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PendingSettlement:
    dispatch: Dispatch
    outcome: Outcome


class Settlements:
    """The settlements of one process; safe to share between threads. Close it at the process's end."""

    def __init__(self, database: Database) -> None:
        """Begin a thread with the first outcome that is late."""
        self._database = database
        self._pending: dict[UUID, _PendingSettlement] = {}
        self._stops_at: float | None = None
        self._retrier = PeriodicThread(
            self._settle_pending,
            name="pending-settlements",
            pause_seconds=RETRY_SECONDS,
            has_work=lambda: self._pending,
        )

    def settle(self, dispatch: Dispatch, outcome: Outcome) -> Settlement | None:
        """Charge a dispatched call for what became of it; None where Postgres is away, and it is charged later.

        Raises SettlementRefused for a dispatch that is not the call's.
        """
        try:
            return retry(partial(self._settle, dispatch, outcome), for_seconds=self._timeout_seconds())
        except DomainError as error:
            if not is_transient(error):
                raise
        self._keep(_PendingSettlement(dispatch=dispatch, outcome=outcome))
        return None

    def shut_down(self) -> None:
        """Wait no longer for Postgres than this process may take to stop; it was asked to."""
        self._stops_at = time.monotonic() + SHUTDOWN_SECONDS

    def close(self) -> None:
        """Charge what is late, if Postgres comes back before this process must end; log what remains."""
        self._retrier.stop(wait=True)
        try:
            retry(self._settle_pending, for_seconds=self._timeout_seconds())
        except DomainError as error:
            for pending in self._pending.values():
                _log_lost(pending, error)

    def _timeout_seconds(self) -> float:
        if self._stops_at is None:
            return SETTLE_SECONDS
        return min(SETTLE_SECONDS, self._stops_at - time.monotonic())

    def _settle(self, dispatch: Dispatch, outcome: Outcome) -> Settlement:
        with self._database.autocommit() as session:
            settled = settlement.settle(session, dispatch.invocation_id, dispatch.token, outcome)
        count_settled(outcome, settled)
        return settled

    def _keep(self, pending: _PendingSettlement) -> None:
        if len(self._pending) >= MAX_PENDING:
            _log_lost(pending)
            return
        log.warning("invocation.settled_later", invocation_id=pending.dispatch.invocation_id)
        self._pending[pending.dispatch.invocation_id] = pending
        self._retrier.wake()

    def _settle_pending(self) -> None:
        """Charge what is late, up to the first that Postgres does not take. Raises ServiceUnavailable."""
        for invocation_id, pending in list(self._pending.items()):
            try:
                self._settle(pending.dispatch, pending.outcome)
            except DomainError as error:
                if is_transient(error):
                    raise
                _log_lost(pending, error)
            del self._pending[invocation_id]


def _log_lost(pending: _PendingSettlement, error: DomainError | None = None) -> None:
    """Tell operators what a call consumed that is charged by its sweep, by what was noted of it."""
    counts = pending.outcome.counts
    log.warning(
        "invocation.not_settled",
        invocation_id=pending.dispatch.invocation_id,
        status=pending.outcome.status.value,
        prompt_tokens=counts.prompt_tokens if counts is not None else None,
        completion_tokens=counts.completion_tokens if counts is not None else None,
        error=error.code if error is not None else None,
    )


NONE = "none"
"""The provider of a call that reached none."""


def count_settled(outcome: Outcome, settled: Settlement) -> None:
    """Count one call that was charged."""
    provider = outcome.provider or NONE
    _calls(provider, outcome.status.value).inc()
    if outcome.counts is not None:
        prompt, completion, charged = _amounts(provider)
        prompt.inc(outcome.counts.prompt_tokens)
        completion.inc(outcome.counts.completion_tokens)
        charged.inc(settled.cost / MICRO)


@cache
def _calls(provider: str, status: str) -> Counter:
    """Find the series; there are as many as operators name providers."""
    return MODEL_CALLS.labels(provider, status)


@cache
def _amounts(provider: str) -> tuple[Counter, Counter, Counter]:
    return (
        MODEL_TOKENS.labels(provider, "prompt"),
        MODEL_TOKENS.labels(provider, "completion"),
        MODEL_CREDITS.labels(provider),
    )
