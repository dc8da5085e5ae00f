"""Delete expired token revocations, console sessions and sign-in links.

A request can outlive the token or session with which it began. The rows of this token or session show whether it
was revoked, so the sweep keeps them until the slowest possible upload is over.
"""

from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, bindparam, delete, func, select

from shared.config.settings import Settings
from shared.db.database import Database
from shared.identity.console_tables import console_links, console_sessions
from shared.identity.tables import revoked_tokens
from shared.messaging.jobs import Context, sweep
from shared.messaging.queues import RETENTION
from shared.runtime.batches import run_in_batches

BATCH_SIZE = 10_000
MARGIN = timedelta(days=1)
"""Added to the duration of the slowest upload, for processing after its last byte."""


@sweep("identity.sweep_revoked_tokens", queue=RETENTION, every_seconds=600)
def _sweep_revoked_tokens(context: Context) -> int:
    return sweep_revoked_tokens(context.database, context.settings)


def sweep_revoked_tokens(database: Database, settings: Settings) -> int:
    """Delete the revocations of tokens for which `_is_long_over` holds. Return how many."""
    expired = select(revoked_tokens.c.jti).where(_is_long_over(revoked_tokens.c.expires_at, settings))
    forget = delete(revoked_tokens).where(revoked_tokens.c.jti.in_(expired.limit(bindparam("limit"))))
    return run_in_batches(database, forget, size=BATCH_SIZE, swept="revoked_tokens")


@sweep("identity.sweep_console_sessions", queue=RETENTION, every_seconds=3600)
def _sweep_console_sessions(context: Context) -> int:
    return sweep_console_sessions(context.database, context.settings)


def sweep_console_sessions(database: Database, settings: Settings) -> int:
    """Delete console sessions and sign-in links for which `_is_long_over` holds. Return how many."""
    deleted = 0
    # Select revoked rows by their expiry too, so that the sweep needs only one index.
    for table in (console_sessions, console_links):
        expired = select(table.c.id).where(_is_long_over(table.c.expires_at, settings))
        forget = delete(table).where(table.c.id.in_(expired.limit(bindparam("limit"))))
        deleted += run_in_batches(database, forget, size=BATCH_SIZE, swept=table.name)
    return deleted


def _is_long_over(expires_at: ColumnElement[Any], settings: Settings) -> ColumnElement[bool]:
    """Return the SQL condition that every upload begun before an expiry is over by now."""
    # Compute the longest upload from the settings: the largest accepted size at the slowest accepted rate.
    slowest = (
        settings.upload_grace_seconds + settings.max_upload_bytes / settings.upload_minimum_bytes_per_second
    )
    return expires_at <= func.now() - (timedelta(seconds=slowest) + MARGIN)
