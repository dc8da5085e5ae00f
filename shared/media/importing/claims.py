"""Claim imports and change their states. Only the worker that holds an import's lease may change the import's state.

    Queued ──claim───────────────────────▶ Fetching ──stored──▶ Stored
      ▲ ▲                                     │ │ └────failed──▶ Failed
      │ └──release_for_retry, postpone────────┘ └─pause─▶ Held     │
      └────────────────resume, retry──────────────────────┴────────┘

Organizations take turns, and so do the distributions of each organization (`shared/fairness/fair_queueing.py`), so no
import waits for all imports of another organization. `is_ready` marks imports that may be claimed now. `due_at` is
the time at which a row is marked again: the time of the next attempt, or the end of the worker's lease. Each claim
increments `attempts`, and every later step of the worker compares this number. So a worker that lost its lease
changes nothing. The statement that stores an import deletes the secret headers and the location of the source.
`paused_imports.py` handles the state Held.
"""

from collections.abc import Collection, Hashable
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, delete, func, literal, select, text, update

from shared.db.advisory_locks import AdvisoryLock, take
from shared.db.database import Database, Session
from shared.db.leases import LeasedTable
from shared.db.statements import Prepared
from shared.fairness.fair_queueing import RoundRobin, next_round_robin
from shared.media.importing.imports import IMPORT_COLUMNS, FetchMedia, Import, ImportState, read_import
from shared.media.importing.pending_attachments import RouteMessages
from shared.media.tables import media_imports
from shared.messaging.jobs import Context, sweep
from shared.messaging.queues import RETENTION
from shared.runtime.batches import run_in_batches
from shared.runtime.retry import backoff_seconds, jittered

LEASE = timedelta(seconds=60)
"""The length of a lease. A lease is renewed during an attempt (`leases.py`), so it ends soon after its worker dies."""
FIRST_DELAY_SECONDS = 5.0
LONGEST_DELAY_SECONDS = 900.0
MAX_RETRY_AFTER_SECONDS = 3600
"""The longest wait that a source can ask for by `Retry-After`."""
MAX_POSTPONEMENT = timedelta(days=3)
"""The time after its push during which an import is postponed if this service fails."""
PURGE_BATCH_SIZE = 1000


_table = media_imports.c

# Count only imports with a valid lease: if a lease has expired, its worker is dead or has stalled.
_BUSY = Prepared("""
SELECT json_agg(json_build_array(organization_id, distribution_id)) AS members FROM (
    SELECT organization_id, distribution_id FROM media_imports WHERE state = 'Fetching' AND due_at > now()
    GROUP BY organization_id, distribution_id HAVING count(*) >= %(per_distribution)s
) busy
""")
_LEASED = LeasedTable(
    name="media_imports",
    waiting="Queued",
    running="Fetching",
    fence="attempts",
    next_fence="attempts + 1",
    until="due_at",
    lease_end="now() + :lease",
)
_HEAD = next_round_robin(
    table="media_imports",
    tenant="organization_id",
    member="distribution_id",
    ready="state = 'Queued' AND is_ready AND due_at <= now()",
    order="due_at",
)
_CLAIMED = ", ".join(f"media_imports.{name}" for name in (*IMPORT_COLUMNS.split(", "), "headers_encrypted"))
# Order by the columns of the index, so that the planner uses it: with EXISTS it may scan the table instead.
_HAS_MORE = """
(SELECT true FROM media_imports more WHERE more.state = 'Queued' AND more.is_ready AND more.id <> head.id
ORDER BY organization_id, distribution_id, due_at LIMIT 1) IS NOT NULL AS has_more
""".strip()
CLAIM = _LEASED.claim(_HEAD, also=", is_ready = false", returning=f"{_CLAIMED}, {_HAS_MORE}")
MARK_READY = _LEASED.mark_ready()
_CLAIM, _MARK_READY = Prepared(text(CLAIM)), text(MARK_READY)
_END = Prepared(f"""
UPDATE media_imports SET state = %(state)s, code = %(code)s, file_id = %(file_id)s, version_id = %(version_id)s,
    location = CASE WHEN %(state)s = 'Stored' THEN '{{}}'::jsonb ELSE location END,
    headers_encrypted = CASE WHEN %(state)s = 'Stored' THEN NULL ELSE headers_encrypted END,
    ended_at = now(), forget_at = now() + make_interval(days => %(kept_days)s)
WHERE id = %(id)s AND state = 'Fetching' AND attempts = %(attempts)s
RETURNING {IMPORT_COLUMNS}, is_awaited
""")  # noqa: S608 (columns from the code)
_IS_ANY_DUE = Prepared("""
SELECT (SELECT true FROM media_imports WHERE state = 'Queued' AND is_ready
    ORDER BY organization_id, distribution_id, due_at LIMIT 1) IS NOT NULL
OR (SELECT true FROM media_imports
    WHERE (state = 'Fetching' OR (state = 'Queued' AND NOT is_ready)) AND due_at <= now()
    ORDER BY due_at LIMIT 1) IS NOT NULL AS is_any
""")
# Wait for a quarter of the import's age, from 5 seconds to 5 minutes. So the waits grow exponentially.
_POSTPONE = text(
    """
UPDATE media_imports SET state = 'Queued', code = :code, attempts = attempts - 1, is_ready = false,
    due_at = now() + greatest(interval '5 s', least(interval '5 min', (now() - created_at) / 4)) * (0.5 + random())
WHERE id = :id AND state = 'Fetching' AND attempts = :attempts AND created_at > now() - :max_age
"""
)


_PURGE = delete(media_imports).where(
    _table.id.in_(select(_table.id).where(_table.forget_at < func.now()).limit(bindparam("limit")))
)


class LeaseLost(Exception):
    """Another worker has claimed this import, or the import has ended. The worker must not change the import."""


def is_any_due(session: Session) -> bool:
    """Return whether an import may be claimable. This check is much cheaper than a claim."""
    row = session.fetch_one(_IS_ANY_DUE, {})
    return row is not None and bool(row.is_any)


def claim_due(
    session: Session,
    rotation: RoundRobin,
    *,
    per_distribution: int,
    full_organizations: Collection[Hashable] = (),
) -> tuple[Import, bytes | None] | None:
    """Claim the next due import. Return the import and its encrypted headers; None if no import may be claimed.

    Skips the organizations in `full_organizations`, and distributions with `per_distribution` imports in progress.
    """
    # Let only one process claim at a time: two concurrent claims could exceed a distribution's limit.
    take(session, AdvisoryLock.IMPORT_CLAIMS)
    busy = session.fetch_one(_BUSY, {"per_distribution": per_distribution})
    row = rotation.claim(
        session,
        _CLAIM,
        {"lease": LEASE},
        mark_ready=_MARK_READY,
        full_tenants=full_organizations,
        full_members=[(UUID(tenant), UUID(member)) for tenant, member in (busy and busy.members) or ()],
    )
    if row is None:
        return None
    # Wake one more thread if there is more to claim. That thread does the same, so threads start one by one.
    if row.has_more:
        session.enqueue(FetchMedia())
    return read_import(row), None if row.headers_encrypted is None else bytes(row.headers_encrypted)


def renew_lease(session: Session, claimed: Import) -> None:
    """Extend the lease, so that it ends LEASE from now. Raises LeaseLost."""
    renewal = update(media_imports).where(*_is_held(claimed)).values(due_at=func.now() + literal(LEASE))
    if session.execute(renewal).rowcount != 1:
        raise LeaseLost


def release_for_retry(
    session: Session, claimed: Import, *, code: str, retry_after_seconds: int | None
) -> bool:
    """Release a failed import for retry. Return False if the caller has lost its lease."""
    put = (
        update(media_imports)
        .where(*_is_held(claimed))
        .values(
            state=ImportState.QUEUED.value,
            code=code,
            is_ready=False,
            due_at=func.now() + literal(delay(claimed.spent_attempts, retry_after_seconds)),
        )
    )
    return session.execute(put).rowcount == 1


def postpone(session: Session, claimed: Import, *, code: str) -> bool:
    """Release an import for a later attempt without counting this one, because a part of this service is unavailable.

    Return False if the import is older than MAX_POSTPONEMENT, or if the caller has lost its lease.
    """
    values = {"id": claimed.id, "attempts": claimed.attempts, "code": code, "max_age": MAX_POSTPONEMENT}
    return session.execute(_POSTPONE, values).rowcount == 1


def mark_stored(
    session: Session, claimed: Import, *, file_id: UUID, version_id: UUID, kept_days: int
) -> Import | None:
    """End an import as stored, and keep its record for `kept_days`. Return None if the caller has lost its lease."""
    stored = {"state": ImportState.STORED.value, "code": None, "file_id": file_id, "version_id": version_id}
    return _end(session, claimed, stored, kept_days)


def mark_failed(session: Session, claimed: Import, *, code: str, kept_days: int) -> Import | None:
    """End an import as failed, and keep its record for `kept_days`. Return None if the caller has lost its lease."""
    failed = {"state": ImportState.FAILED.value, "code": code, "file_id": None, "version_id": None}
    return _end(session, claimed, failed, kept_days)


def delay(attempts: int, retry_after_seconds: int | None) -> timedelta:
    """Return the wait after this many attempts: it doubles, varies by 50 %, and is at least `retry_after_seconds`."""
    usual = jittered(backoff_seconds(attempts, first=FIRST_DELAY_SECONDS, longest=LONGEST_DELAY_SECONDS))
    return timedelta(seconds=max(usual, min(retry_after_seconds or 0, MAX_RETRY_AFTER_SECONDS)))


@sweep("media.purge_imports", queue=RETENTION, every_seconds=3600)
def _purge_imports(context: Context) -> int:
    return purge_imports(context.database)


def purge_imports(database: Database) -> int:
    """Delete the records of imports whose time of keeping has ended. Return the number of deleted records."""
    return run_in_batches(database, _PURGE, size=PURGE_BATCH_SIZE, swept="imports")


def _end(session: Session, claimed: Import, values: dict[str, Any], kept_days: int) -> Import | None:
    held = {"id": claimed.id, "attempts": claimed.attempts}
    row = session.fetch_one(_END, {**values, **held, "kept_days": kept_days})
    if row is None:
        return None
    if row.is_awaited:
        session.enqueue(RouteMessages())
    return read_import(row)


def _is_held(claimed: Import) -> tuple[Any, ...]:
    return (
        _table.id == claimed.id,
        _table.state == ImportState.FETCHING.value,
        _table.attempts == claimed.attempts,
    )
