"""Set LIMITS on the database role if connections go through a pooler in transaction mode, which forwards no options.

Without a pooler each connection sets its own limits (`database.LIMITS`). PgBouncer would refuse these options or
drop them silently. Without limits, a statement could run for ever, or wait for a lock for ever. So the limits are
set on the role in the database, and a process refuses to start if its connections lack the limits.
"""

import os
import sys
from contextlib import suppress

from sqlalchemy import text

from shared.config.settings import Settings
from shared.db.database import LIMITS, Database
from shared.errors import DomainError, ServiceUnavailable
from shared.observability.telemetry import get_logger

log = get_logger(__name__)

# Read pg_settings, which reports times in milliseconds and the unit in a separate column.
_SHOW = text(
    """
SELECT asked.name FROM unnest(CAST(:names AS text[]), CAST(:wanted AS text[])) AS asked (name, wanted)
JOIN pg_settings AS actual ON lower(actual.name) = asked.name
WHERE actual.setting || CASE actual.unit WHEN 'ms' THEN 'ms' ELSE '' END <> asked.wanted
"""
)
_QUOTED = text("SELECT quote_ident(current_user) AS role, quote_ident(current_database()) AS database")
# A connection keeps the limits that its role had when it was opened. So terminate idle connections, which the
# pooler then reopens.
_RENEW = text(
    """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE usename = current_user AND datname = current_database() AND (state = 'idle' OR pid = pg_backend_pid())
"""
)


def find_missing_limits(database: Database) -> list[str]:
    """Return the names of the limits that a connection lacks, or for which it has another value.

    Raises ServiceUnavailable.
    """
    with database.autocommit() as session:
        values = {"names": list(LIMITS), "wanted": list(LIMITS.values())}
        return list(session.execute(_SHOW, values).scalars())


def set_limits(database: Database) -> None:
    """Set the role's limits in this database and make the pooler reconnect. Raises ServiceUnavailable.

    If the limits are set already, this function changes nothing.
    """
    if not find_missing_limits(database):
        return
    with database.transaction() as session:
        names = session.execute(_QUOTED).one()
        for name, value in LIMITS.items():
            change = f"ALTER ROLE {names.role} IN DATABASE {names.database} SET {name} = '{value}'"
            session.execute(text(change))
    # Suppress the error: the statement also terminates the connection that runs it.
    with suppress(ServiceUnavailable), database.autocommit() as session:
        session.execute(_RENEW)


def refuse_missing_limits(settings: Settings, database: Database) -> None:
    """Exit this starting process (status 78) if its pooled connections lack the limits.

    If the database does not answer, the process starts and is not ready.
    """
    if not settings.database_pooler:
        return
    try:
        missing = find_missing_limits(database)
    except DomainError as error:
        log.warning("database.limits_not_compared", error=error.code)
        return
    if missing:
        log.warning("process.not_started", reason=f"{', '.join(missing)}: run `quartermaster migrate`")
        sys.exit(os.EX_CONFIG)
