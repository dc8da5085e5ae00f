"""Expire resumable uploads that received nothing for a day, by organizations in turn, and delete those that ended."""

from datetime import timedelta

from sqlalchemy import Integer, bindparam, delete, exists, func, literal, select, text

from shared import failpoints
from shared.db.database import Database
from shared.fairness.fair_queueing import first_of_each, select_round_robin
from shared.files.resumable.uploads import UploadState, end_all
from shared.files.tables import ended_content
from shared.files.tables import resumable_uploads as uploads
from shared.messaging.jobs import Context, sweep
from shared.messaging.queues import RETENTION
from shared.observability.telemetry import SWEPT
from shared.runtime.batches import drain, run_in_batches

BATCH_SIZE = 200
ENDED_KEPT = timedelta(days=1)
"""The time for which an ended upload is kept and reports that it has ended."""

_OPEN = "state = 'Receiving'"
_OLDEST = text(
    f"SELECT id FROM resumable_uploads WHERE {_OPEN} AND expires_at <= now()"  # noqa: S608 (from the code)
    " ORDER BY expires_at LIMIT :limit FOR UPDATE SKIP LOCKED"
)
_HEADS = first_of_each(table="resumable_uploads", tenant="payer_id", ready=_OPEN, order="expires_at")
FAIR = f"SELECT id FROM ({_HEADS}) due ORDER BY place, random() LIMIT :limit"  # noqa: S608
_FAIR = text(FAIR)
_STILL_DUE = text(
    "SELECT id FROM resumable_uploads WHERE id = ANY (CAST(:ids AS uuid[])) AND state = 'Receiving'"
    " AND expires_at <= now() FOR UPDATE SKIP LOCKED"
)


@sweep("files.expire_uploads", queue=RETENTION, every_seconds=60)
def _expire_uploads(context: Context) -> int:
    return expire_uploads(context.database)


def expire_uploads(database: Database) -> int:
    """Expire each upload that is due, in batches, and mark its pieces for deletion. Return the number of uploads."""

    def batch() -> int:
        with database.transaction() as session:
            found = select_round_robin(session, oldest=_OLDEST, fair=_FAIR, limit=BATCH_SIZE)
            due = list(session.execute(_STILL_DUE, {"ids": [str(at) for at in found]}).scalars())
            ended = end_all(session, due, UploadState.EXPIRED)
            failpoints.hit("resumable.before_expiry")
        SWEPT.labels("uploads").inc(len(ended))
        return len(ended)

    return drain(batch, size=BATCH_SIZE)


def purge_uploads(database: Database) -> int:
    """Delete uploads that ended more than a day ago and have no pieces left. Return the number of uploads."""
    long_ago = func.now() - literal(ENDED_KEPT)
    limit = bindparam("limit", type_=Integer)
    # Keep the row as long as there are pieces: by this row the collector finds them.
    has_pieces = exists().where(ended_content.c.id == uploads.c.id)
    old = select(uploads.c.id).where(uploads.c.ended_at < long_ago, ~has_pieces).limit(limit)
    forget = delete(uploads).where(uploads.c.id.in_(old))
    return run_in_batches(database, forget, size=BATCH_SIZE, swept="uploads")
