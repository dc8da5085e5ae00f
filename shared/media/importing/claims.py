"""The states of an import that waits, and who may move it: one worker at a time, under a lease, for one attempt.

    Queued ──claim────────▶ Fetching ──stored──▶ Stored
      ▲ ▲                      │ │ └────failed──▶ Failed
      │ └──release_for_retry, postpone──┘ └─hold─▶ Held     │
      └────────────────resume, retry──────┴────────┘

Organizations take turns, and within each its distributions (`shared/fairness/fair_queueing.py`): no import waits for
everything that somebody else has pushed. `is_ready` marks what may be claimed now. `due_at` is when an import is marked
again: the time of its next attempt, or the end of the lease of the worker that has it. Each claim counts an attempt,
and every later step names it: a worker that was given up, however late it comes back, changes nothing. Storing
erases what was secret or perishable about the source, in the same statement. What is held is `paused_imports.py`'s.
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
"""Renewed for as long as an attempt lasts (`leases.py`), so that it ends soon after its worker."""
FIRST_DELAY_SECONDS = 5.0
LONGEST_DELAY_SECONDS = 900.0
MAX_RETRY_AFTER_SECONDS = 3600
"""A source that asks us to come back later is believed up to this."""
MAX_POSTPONEMENT = timedelta(days=3)
"""How long an import waits for what is missing on our own side, from when it was pushed."""
PURGE_BATCH_SIZE = 1000


_table = media_imports.c

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
# In an index's order: EXISTS would let the planner read the table until it meets a row.
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
# Exponential, from seconds to minutes.
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
    """Somebody else has this import by now, or it has ended: a worker that is told so leaves it alone."""


def is_any_due(session: Session) -> bool:
    """Tell, for much less than a claim costs, whether there may be an import to claim."""
    row = session.fetch_one(_IS_ANY_DUE, {})
    return row is not None and bool(row.is_any)


def claim_due(
    session: Session,
    rotation: RoundRobin,
    *,
    per_distribution: int,
    full_organizations: Collection[Hashable] = (),
) -> tuple[Import, bytes | None] | None:
    """Claim the next due import, with its encrypted headers; None when nothing may be taken.

    Passes over `full_organizations`, and distributions that have as many workers as they may.
    """
    # One claimer at a time: two would let a distribution have more workers than it may.
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
    if row.has_more:
        session.enqueue(FetchMedia())
    return read_import(row), None if row.headers_encrypted is None else bytes(row.headers_encrypted)


def renew_lease(session: Session, claimed: Import) -> None:
    """Keep an import for as long as a new lease. Raises LeaseLost."""
    renewal = update(media_imports).where(*_is_held(claimed)).values(due_at=func.now() + literal(LEASE))
    if session.execute(renewal).rowcount != 1:
        raise LeaseLost


def release_for_retry(
    session: Session, claimed: Import, *, code: str, retry_after_seconds: int | None
) -> bool:
    """Let a later attempt have an import whose attempt failed; False when it is no longer the caller's."""
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
    """Let an import wait until we can store it, without counting the attempt.

    False when it has waited for too long, or is no longer the caller's.
    """
    values = {"id": claimed.id, "attempts": claimed.attempts, "code": code, "max_age": MAX_POSTPONEMENT}
    return session.execute(_POSTPONE, values).rowcount == 1


def mark_stored(
    session: Session, claimed: Import, *, file_id: UUID, version_id: UUID, kept_days: int
) -> Import | None:
    """End an import with its file; None when it is no longer the caller's. It is remembered for `kept_days`."""
    stored = {"state": ImportState.STORED.value, "code": None, "file_id": file_id, "version_id": version_id}
    return _end(session, claimed, stored, kept_days)


def mark_failed(session: Session, claimed: Import, *, code: str, kept_days: int) -> Import | None:
    """End an import without a file; None when it is no longer the caller's. It is remembered for `kept_days`."""
    failed = {"state": ImportState.FAILED.value, "code": code, "file_id": None, "version_id": None}
    return _end(session, claimed, failed, kept_days)


def delay(attempts: int, retry_after_seconds: int | None) -> timedelta:
    """Choose how long to wait after so many attempts: doubling, give or take a half, no less than was asked for."""
    usual = jittered(backoff_seconds(attempts, first=FIRST_DELAY_SECONDS, longest=LONGEST_DELAY_SECONDS))
    return timedelta(seconds=max(usual, min(retry_after_seconds or 0, MAX_RETRY_AFTER_SECONDS)))


@sweep("media.purge_imports", queue=RETENTION, every_seconds=3600)
def _purge_imports(context: Context) -> int:
    return purge_imports(context.database)


def purge_imports(database: Database) -> int:
    """Forget imports that have ended long enough ago; return how many."""
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
