"""Set LIMITS on the role when connections go through a pooler in transaction mode, which passes no options on.

Without a pooler each connection sets its own limits (`database.LIMITS`). PgBouncer would refuse these options, or
drop them silently: then a statement could run, and a lock be awaited, for ever. So the role has the limits in the
database, and a process refuses to start if its connections lack them.
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

# pg_settings reports times in milliseconds, with the unit in a column of its own.
_SHOW = text(
    """
SELECT asked.name FROM unnest(CAST(:names AS text[]), CAST(:wanted AS text[])) AS asked (name, wanted)
JOIN pg_settings AS actual ON lower(actual.name) = asked.name
WHERE actual.setting || CASE actual.unit WHEN 'ms' THEN 'ms' ELSE '' END <> asked.wanted
"""
)
_QUOTED = text("SELECT quote_ident(current_user) AS role, quote_ident(current_database()) AS database")
# A connection keeps the limits its role had when it was opened, so idle ones are terminated and reopened.
_RENEW = text(
    """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE usename = current_user AND datname = current_database() AND (state = 'idle' OR pid = pg_backend_pid())
"""
)


def find_missing_limits(database: Database) -> list[str]:
    """Return the names of limits that a connection lacks or has with another value.

    Raises ServiceUnavailable.
    """
    with database.autocommit() as session:
        values = {"names": list(LIMITS), "wanted": list(LIMITS.values())}
        return list(session.execute(_SHOW, values).scalars())


def set_limits(database: Database) -> None:
    """Set the role's limits in this database and make the pooler reconnect. Raises ServiceUnavailable.

    Does nothing if the limits are set already.
    """
    if not find_missing_limits(database):
        return
    with database.transaction() as session:
        names = session.execute(_QUOTED).one()
        for name, value in LIMITS.items():
            change = f"ALTER ROLE {names.role} IN DATABASE {names.database} SET {name} = '{value}'"
            session.execute(text(change))
    # Expected to fail: the statement also terminates the connection that runs it.
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
