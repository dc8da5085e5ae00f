"""Delete rows of identity that have outlived their use."""

from sqlalchemy import bindparam, delete, func, select

from shared.database import Database
from shared.identity.console_tables import console_links, console_sessions
from shared.identity.tables import revoked_tokens
from shared.jobs import Context, sweep
from shared.queues import RETENTION
from shared.sweeping import run_in_batches

BATCH_SIZE = 10_000


@sweep("identity.sweep_revoked_tokens", queue=RETENTION, every_seconds=600)
def _sweep_revoked_tokens(context: Context) -> int:
    return sweep_revoked_tokens(context.database)


def sweep_revoked_tokens(database: Database) -> int:
    """Delete revocations of tokens that have expired; return how many."""
    expired = select(revoked_tokens.c.jti).where(revoked_tokens.c.expires_at <= func.now())
    forget = delete(revoked_tokens).where(revoked_tokens.c.jti.in_(expired.limit(bindparam("limit"))))
    return run_in_batches(database, forget, size=BATCH_SIZE, swept="revoked_tokens")


@sweep("identity.sweep_console_sessions", queue=RETENTION, every_seconds=3600)
def _sweep_console_sessions(context: Context) -> int:
    return sweep_console_sessions(context.database)


def sweep_console_sessions(database: Database) -> int:
    """Delete sessions and links of the console that are over; return how many."""
    deleted = 0
    for table in (console_sessions, console_links):
        expired = select(table.c.id).where(table.c.expires_at <= func.now())
        forget = delete(table).where(table.c.id.in_(expired.limit(bindparam("limit"))))
        deleted += run_in_batches(database, forget, size=BATCH_SIZE, swept=table.name)
    return deleted
