"""Pause and resume imports (state `Held`) that wait until an administrator has resolved an error.

The error may be one of credentials, payment or permissions, or something may be disabled. A pause counts no attempt,
and a paused import is not part of the backlog. An import is queued again in three cases. The settings of its network
have changed. The audit log has a change of its organization after which the distribution may import again. Or a
growing wait has passed, because the cause may lie outside this service. The cost of a check depends on the number of
organizations with paused imports; organizations take turns. An import that stays paused fails when the time of
keeping its record ends.
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
"""The most imports of a distribution that are queued again at once: fewer than QUEUED_IMPORTS allows."""
CHANGES_SEEN = timedelta(minutes=15)
"""The age up to which changes are considered. A payment for storage takes effect only at the next charge."""
MAX_DISTRIBUTIONS = 200
"""The most distributions with paused imports that one run checks."""
_FOR_THE_NETWORK = (SourceRefused.code, NetworkNotConfigured.code)
"""Codes of errors that are resolved only in the network or by its settings, not by a change in the audit log."""

_table = media_imports.c
# Wait for a quarter of the import's age, from a minute to six hours. So the waits grow exponentially.
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
# Order by the columns of the index, so that the planner uses it: with EXISTS it may scan the audit events of all
# organizations.
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
    """Return whether an import that failed with this error should pause.

    A generic push whose headers were refused fails, because only the client that pushed can send other headers.
    """
    return needs_operator(error) and not (claimed.network == STANDARD and isinstance(error, SourceRefused))


def pause(session: Session, settings: Settings, claimed: Import, *, code: str) -> bool:
    """Pause an import without counting the attempt.

    Return False if the import has been paused for as long as records are kept, or if the caller has lost its lease.
    """
    max_age = timedelta(days=settings.media_record_days)
    values = {"id": claimed.id, "attempts": claimed.attempts, "code": code, "max_age": max_age}
    return session.execute(_PAUSE, values).rowcount == 1


def resume(session: Session, distribution_id: UUID, *, network: str) -> int:
    """Queue a distribution's paused imports from a network again. Return the number of imports."""
    return _queue_again(session, _table.distribution_id == distribution_id, _table.network == network)


@sweep("media.resume_held", queue=RETENTION, every_seconds=30)
def _resume_paused(context: Context) -> int:
    return resume_paused(context.database)


def resume_paused(database: Database) -> int:
    """Queue paused imports again if they are due or their error may be resolved. Return the number of imports."""
    with database.transaction() as session:
        due = select_round_robin(session, oldest=_OLDEST, fair=_FAIR, limit=BATCH_SIZE)
        resumed = _queue_again(session, _table.id.in_(due)) if due else 0
        changed = _find_changed(session)
    # Use one transaction for each distribution, so that rows are locked only for a short time.
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
    """Return distributions with paused imports whose organization has changed within CHANGES_SEEN."""
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
    # Use a CTE, which is evaluated once: a joined subquery might be evaluated for each row, and so exceed its LIMIT.
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
