"""Finish background work: each domain's sweeps, its deadlines and leases, and the queries for pending work.

During the run, leases are made to expire now and then, as if their holders had been away too long. At the end,
simulated time passes until no work is pending. Leases of live processes then rest for a while, because work that takes
longer than the poll interval would otherwise never finish.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.support.data.inventory import query, send_sweeps, staged_names
from tests.support.processes.stack import Stack, TookTooLong

RESEND_SECONDS = 1.0
LOOK_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class PendingWork:
    """The pending work of one domain: `left` is a query of it; `ended_leases` and `passed_time` are updates."""

    kinds: Sequence[str]
    left: str
    ended_leases: str
    passed_time: str


FILES = PendingWork(
    kinds=(
        "files.place_staged",
        "files.expire_due",
        "files.collect_doomed",
        "files.sweep_staging",
        "files.accrue_storage",
    ),
    left="""
        (SELECT version_id, state FROM blobs WHERE state <> 'live' LIMIT 5) UNION ALL
        (SELECT id, 'due' FROM files WHERE state = 'Available' AND retention_expires_at <= now() LIMIT 5)""",
    ended_leases="UPDATE blobs SET lease_until = now() - interval '1 second' WHERE lease_until > now()",
    passed_time="UPDATE blobs SET lease_until = now() - interval '1 second' WHERE lease_until > now()",
)
MEDIA = PendingWork(
    kinds=("media.fetch_due",),
    left="SELECT id, state, attempts, code FROM media_imports WHERE state IN ('Queued', 'Fetching') LIMIT 5",
    ended_leases="UPDATE media_imports SET due_at = now()"
    " WHERE state = 'Fetching' AND due_at > now() AND random() < 0.3",
    passed_time="UPDATE media_imports SET due_at = now() WHERE state = 'Queued' AND due_at > now()"
    " OR state = 'Fetching' AND due_at BETWEEN now() AND now() + interval '50 seconds'",
)
CREDITS = PendingWork(
    kinds=(
        "credits.release_overdue_holds",
        "credits.settle_unresolved",
        "credits.roll_up_usage",
        "credits.prove_ledger",
    ),
    left="SELECT id, state FROM invocations WHERE state IN ('held', 'dispatched', 'unresolved') LIMIT 5",
    ended_leases="UPDATE invocations SET lease_until = now() - interval '1 second'"
    " WHERE state IN ('held', 'dispatched') AND random() < 0.3",
    # An unresolved call waits a day for its worker, before an estimate is charged.
    passed_time="UPDATE invocations SET lease_until = now() - interval '25 hours'"
    " WHERE state IN ('held', 'dispatched', 'unresolved') AND lease_until > now() - interval '24 hours'",
)
DELIVERIES = PendingWork(
    kinds=("media.notice_expired", "deliveries.send"),
    left="SELECT id, event, state, attempts, last_status, last_code FROM deliveries"
    " WHERE state IN ('Waiting', 'Sending') LIMIT 5",
    ended_leases="UPDATE deliveries SET due_at = now()"
    " WHERE state = 'Sending' AND due_at > now() AND random() < 0.3",
    passed_time="UPDATE deliveries SET due_at = now() WHERE state = 'Waiting' AND NOT is_held AND due_at > now()"
    " OR state = 'Sending' AND due_at BETWEEN now() AND now() + interval '50 seconds'",
)
AGENTS = PendingWork(
    kinds=("agents.sweep_turns",),
    left="SELECT task_id, state, attempts FROM task_turns WHERE state <> 'done' LIMIT 5",
    ended_leases="UPDATE task_turns SET lease_until = now() WHERE state = 'running' AND random() < 0.3",
    passed_time="UPDATE task_turns SET lease_until = now()"
    " WHERE state = 'running' AND lease_until < now() + interval '15 seconds'",
)


class BackgroundWork:
    """Advances a stack's time for the domains in use."""

    def __init__(self, stack: Stack, domains: Sequence[PendingWork]) -> None:
        self._stack = stack
        self._domains = domains

    def request_sweeps(self) -> None:
        """Enqueue every sweep now, instead of waiting for beat."""
        send_sweeps(self._stack.broker_url, [kind for domain in self._domains for kind in domain.kinds])

    def expire_leases(self) -> None:
        """Expire the leases of dead and live holders."""
        for domain in self._domains:
            query(self._stack, domain.ended_leases)

    def finish(self, *, seconds: float, meanwhile: Callable[[], None]) -> None:
        """Have the running workers finish all work; raise `TookTooLong` with the pending work."""
        gives_up_at = time.monotonic() + seconds
        while left := self._left():
            if time.monotonic() > gives_up_at:
                raise TookTooLong(f"not settled; {left}")
            meanwhile()
            for domain in self._domains:
                query(self._stack, domain.passed_time)
            self.request_sweeps()
            self._wait_a_moment()

    def _wait_a_moment(self) -> None:
        resend_at = time.monotonic() + RESEND_SECONDS
        while time.monotonic() < resend_at and self._left():
            time.sleep(LOOK_SECONDS)

    def _left(self) -> list[str]:
        """Return descriptions of pending work, at most a few."""
        left = [str(row) for domain in self._domains for row in query(self._stack, domain.left)]
        return left + [f"staged {name}" for name in sorted(staged_names(self._stack.blobs))[:5]]
