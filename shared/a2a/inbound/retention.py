"""Delete expired records of messages. A later push with the same id is a new message."""

from sqlalchemy import bindparam, delete, func, select

from shared.a2a.inbound.tables import distribution_messages
from shared.db.database import Database
from shared.messaging.jobs import Context, sweep
from shared.messaging.queues import RETENTION
from shared.runtime.batches import run_in_batches

BATCH_SIZE = 1000
_table = distribution_messages.c
_PURGE = delete(distribution_messages).where(
    _table.id.in_(select(_table.id).where(_table.forget_at < func.now()).limit(bindparam("limit")))
)


@sweep("door.purge_messages", queue=RETENTION, every_seconds=3600)
def _purge_messages(context: Context) -> int:
    return purge_messages(context.database)


def purge_messages(database: Database) -> int:
    """Delete the records that are due. Return their number."""
    return run_in_batches(database, _PURGE, size=BATCH_SIZE, swept="distribution_messages")
