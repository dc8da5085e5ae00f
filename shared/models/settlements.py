"""Charge the calls of a process. Settlements that Postgres cannot take in time are kept and retried.

Only the worker that made a call knows the token counts that the provider reported. If Postgres does not accept a
settlement within `SETTLE_SECONDS`, a background thread retries until the settlement succeeds or the process must end.
The call's lease may expire meanwhile: a sweep then charges an estimate, which the late settlement corrects
(`shared/credits/settlement.py`). A killed process loses only the counts of calls that ended after Postgres became
unavailable (docs/specification/credits.md#holds).
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
"""How long the end of a reply may wait for its settlement; longer than a restart of the database takes."""
RETRY_SECONDS = 1.0
SHUTDOWN_SECONDS = 25.0
"""How long a process may settle calls after it was asked to stop; slightly less than its supervisor's timeout."""
MAX_PENDING = 10_000
"""Maximum number of pending settlements in one process. While Postgres is away, no new call adds to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PendingSettlement:
    dispatch: Dispatch
    outcome: Outcome


class Settlements:
    """The settlements of one process; safe to share between threads. The process must call `close` at its end."""

    def __init__(self, database: Database) -> None:
        """Create settlements. The retry thread starts with the first settlement that Postgres does not accept."""
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
        """Charge a dispatched call. If Postgres is unavailable, keep the settlement for later and return None.

        Raises SettlementRefused if `dispatch` does not have the right to the call.
        """
        try:
            return retry(partial(self._settle, dispatch, outcome), for_seconds=self._timeout_seconds())
        except DomainError as error:
            if not is_transient(error):
                raise
        self._keep(_PendingSettlement(dispatch=dispatch, outcome=outcome))
        return None

    def shut_down(self) -> None:
        """Limit the total time that this process waits for Postgres to `SHUTDOWN_SECONDS` from now."""
        self._stops_at = time.monotonic() + SHUTDOWN_SECONDS

    def close(self) -> None:
        """Retry the pending settlements until the process must end. Log the settlements that still fail."""
        self._retrier.stop(wait=True)
        try:
            retry(self._settle_pending, for_seconds=self._timeout_seconds())
        except DomainError as error:
            for pending in self._pending.values():
                _log_lost(pending, error)

    def _timeout_seconds(self) -> float:
        if self._stops_at is None:
            return SETTLE_SECONDS
        # A stopping process must not wait longer than its supervisor allows.
        return min(SETTLE_SECONDS, self._stops_at - time.monotonic())

    def _settle(self, dispatch: Dispatch, outcome: Outcome) -> Settlement:
        with self._database.autocommit() as session:
            settled = settlement.settle(session, dispatch.invocation_id, dispatch.token, outcome)
        count_settled(outcome, settled)
        return settled

    def _keep(self, pending: _PendingSettlement) -> None:
        # Drop the settlement to bound the memory: a sweep charges the call by estimate.
        if len(self._pending) >= MAX_PENDING:
            _log_lost(pending)
            return
        log.warning("invocation.settled_later", invocation_id=pending.dispatch.invocation_id)
        self._pending[pending.dispatch.invocation_id] = pending
        self._retrier.wake()

    def _settle_pending(self) -> None:
        """Charge the pending calls in order. Raises ServiceUnavailable at the first that Postgres does not accept."""
        for invocation_id, pending in list(self._pending.items()):
            try:
                self._settle(pending.dispatch, pending.outcome)
            except DomainError as error:
                # Postgres is unavailable, so do not try the remaining settlements.
                if is_transient(error):
                    raise
                _log_lost(pending, error)
            del self._pending[invocation_id]


def _log_lost(pending: _PendingSettlement, error: DomainError | None = None) -> None:
    """Log the token counts of a call after its settlement was dropped. A sweep charges the call by estimate."""
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
"""The value of the metrics' label `provider` for calls that reached no provider."""


def count_settled(outcome: Outcome, settled: Settlement) -> None:
    """Add a charged call's status, tokens and cost to the metrics of its provider.

    The metrics have no labels for organization and model, which would create too many series.
    """
    provider = outcome.provider or NONE
    _calls(provider, outcome.status.value).inc()
    if outcome.counts is not None:
        prompt, completion, charged = _amounts(provider)
        prompt.inc(outcome.counts.prompt_tokens)
        completion.inc(outcome.counts.completion_tokens)
        charged.inc(settled.cost / MICRO)


@cache
def _calls(provider: str, status: str) -> Counter:
    """Return a counter of `MODEL_CALLS`. The cache is bounded by the number of configured providers."""
    return MODEL_CALLS.labels(provider, status)


@cache
def _amounts(provider: str) -> tuple[Counter, Counter, Counter]:
    return (
        MODEL_TOKENS.labels(provider, "prompt"),
        MODEL_TOKENS.labels(provider, "completion"),
        MODEL_CREDITS.labels(provider),
    )
