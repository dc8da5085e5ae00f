"""Paused imports (state `Held`): an administrator must fix credentials, pay, enable or permit something first.

A paused import costs no attempt and is no backlog. It is queued again when its network's settings change; when its
distribution may import again after a change in its organization (credits, permissions, enabling: all of it is in the
audit log); and at growing intervals, for changes outside this service. A check costs as much as there are
organizations with paused imports, and organizations take turns. An import that stays paused fails when its record
would be deleted.
"""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, func, select, text, update

from shared.config.settings import Settings
from shared.db.database import Database, Session
from shared.errors import DomainError
from shared.fairness.fair_queueing import first_of_each, select_round_robin, tenants_with
from shared.ids import least_id
from shared.media.errors import NetworkNotConfigured, SourceRefused
from shared.media.importing.authority import authorize_import, needs_operator
from shared.media.importing.imports import STANDARD, FetchMedia, Import, ImportState
from shared.media.tables import media_imports
from shared.messaging.jobs import Context, sweep
from shared.messaging.queues import RETENTION

BATCH_SIZE = 500
"""Imports of a distribution queued again at once: fewer than QUEUED_IMPORTS allows."""
CHANGES_SEEN = timedelta(minutes=15)
"""Changes of this age are still considered: paid storage is accepted only by the next charge."""
MAX_DISTRIBUTIONS = 200
"""Distributions with paused imports checked in one run."""
_FOR_THE_NETWORK = (SourceRefused.code, NetworkNotConfigured.code)
"""Codes of causes that only the network or its settings resolve, and no change in the audit log."""

_table = media_imports.c
# The wait is a quarter of the import's age: exponential, from a minute to six hours.
_PAUSE = text(
    """
UPDATE media_imports SET state = 'Held', code = :code, attempts = attempts - 1, is_ready = false,
    due_at = now() + greatest(interval '1 min', least(interval '6 h', (now() - created_at) / 4)) * (0.5 + random())
WHERE id = :id AND state = 'Fetching' AND attempts = :attempts AND created_at > now() - :max_age
"""
)
_IS_PAUSED = _table.state == text("'Held'")
_OLDEST = text(
    "SELECT id FROM media_imports WHERE state = 'Held' AND due_at <= now() ORDER BY due_at LIMIT :limit"
)
_FIRST = first_of_each(
    table="media_imports", tenant="organization_id", ready="state = 'Held'", order="due_at"
)
_FAIR = text(f"SELECT id FROM ({_FIRST}) due ORDER BY place, random() LIMIT :limit")  # noqa: S608 (names from the code)
# Ordered like the index: with EXISTS the planner may scan all audit events until one is of the organization.
_CHANGED = text(
    f"""
{tenants_with(table="media_imports", tenant="organization_id", ready="state = 'Held'")}
SELECT id FROM (
    SELECT distributions.id, row_number() OVER (PARTITION BY organization_id ORDER BY random()) AS place
    FROM tenants JOIN distributions ON distributions.organization_id = tenants.tenant
    WHERE (SELECT id FROM audit_events acts WHERE acts.organization_id = tenants.tenant AND acts.id >= :since
        ORDER BY acts.organization_id, acts.id LIMIT 1) IS NOT NULL
    AND EXISTS (SELECT FROM media_imports WHERE distribution_id = distributions.id AND state = 'Held')
) held ORDER BY place, random() LIMIT :limit
"""  # noqa: S608 (names from the code)
)


def should_pause(claimed: Import, error: DomainError) -> bool:
    """Return whether an import with this failure should pause.

    Refused headers of a generic push fail it: only the pusher could send other ones.
    """
    return needs_operator(error) and not (claimed.network == STANDARD and isinstance(error, SourceRefused))


def pause(session: Session, settings: Settings, claimed: Import, *, code: str) -> bool:
    """Pause an import without counting the attempt.

    Return False if it has been paused for as long as records are kept, or the caller has lost its lease.
    """
    max_age = timedelta(days=settings.media_record_days)
    values = {"id": claimed.id, "attempts": claimed.attempts, "code": code, "max_age": max_age}
    return session.execute(_PAUSE, values).rowcount == 1


def resume(session: Session, distribution_id: UUID, *, network: str) -> int:
    """Queue a distribution's paused imports from a network again; return how many."""
    return _queue_again(session, _table.distribution_id == distribution_id, _table.network == network)


@sweep("media.resume_held", queue=RETENTION, every_seconds=30)
def _resume_paused(context: Context) -> int:
    return resume_paused(context.database)


def resume_paused(database: Database) -> int:
    """Queue paused imports again that are due or may be fetchable now; return how many."""
    with database.transaction() as session:
        due = select_round_robin(session, oldest=_OLDEST, fair=_FAIR, limit=BATCH_SIZE)
        resumed = _queue_again(session, _table.id.in_(due)) if due else 0
        changed = _find_changed(session)
    # A transaction for each distribution keeps row locks short.
    for distribution_id in changed:
        with database.transaction() as session:
            if _may_import(session, distribution_id):
                resumed += _queue_again(
                    session,
                    _table.distribution_id == distribution_id,
                    _table.code.not_in(_FOR_THE_NETWORK),
                )
    return resumed


def _find_changed(session: Session) -> Sequence[UUID]:
    """Return distributions with paused imports in organizations with a change within CHANGES_SEEN."""
    now = session.execute(select(func.now())).scalar_one()
    since = least_id(now - CHANGES_SEEN)
    return session.execute(_CHANGED, {"since": since, "limit": MAX_DISTRIBUTIONS}).scalars().all()


def _may_import(session: Session, distribution_id: UUID) -> bool:
    try:
        authorize_import(session, distribution_id)
    except DomainError:
        return False
    return True


def _queue_again(session: Session, *which: ColumnElement[bool]) -> int:
    # A CTE is evaluated once; a joined subquery with LIMIT might be evaluated for each row and exceed the limit.
    held = select(_table.id).where(_IS_PAUSED, *which).order_by(_table.created_at).limit(BATCH_SIZE)
    batch = held.with_for_update(skip_locked=True).cte("batch")
    queued = (
        update(media_imports)
        .where(_table.id == batch.c.id)
        .values(state=ImportState.QUEUED.value, is_ready=True, due_at=func.now())
    )
    count = int(session.execute(queued).rowcount)
    if count:
        session.enqueue(FetchMedia())
    return count
