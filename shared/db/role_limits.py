"""The limits of connections through a pooler in transaction mode: they are the role's, as the pooler passes on none.

Without a pooler each connection brings its own (`database.LIMITS`). Through PgBouncer they would be refused, or
silently be none: a statement could then run, and a lock be waited for, without end. So the role has them in the
database, and a process does not start unless its connections do.
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

_SHOW = text(
    """
SELECT asked.name FROM unnest(CAST(:names AS text[]), CAST(:wanted AS text[])) AS asked (name, wanted)
JOIN pg_settings AS actual ON lower(actual.name) = asked.name
WHERE actual.setting || CASE actual.unit WHEN 'ms' THEN 'ms' ELSE '' END <> asked.wanted
"""
)
_QUOTED = text("SELECT quote_ident(current_user) AS role, quote_ident(current_database()) AS database")
# A connection has the limits that its role had when it was made.
_RENEW = text(
    """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE usename = current_user AND datname = current_database() AND (state = 'idle' OR pid = pg_backend_pid())
"""
)


def find_missing_limits(database: Database) -> list[str]:
    """Give the names of the limits that a connection has not, or otherwise. Raises ServiceUnavailable."""
    with database.autocommit() as session:
        values = {"names": list(LIMITS), "wanted": list(LIMITS.values())}
        return list(session.execute(_SHOW, values).scalars())


def set_limits(database: Database) -> None:
    """Give the role of these connections its limits in this database, and let the pooler connect anew.

    Nothing happens where it has them. Raises ServiceUnavailable.
    """
    if not find_missing_limits(database):
        return
    with database.transaction() as session:
        names = session.execute(_QUOTED).one()
        for name, value in LIMITS.items():
            change = f"ALTER ROLE {names.role} IN DATABASE {names.database} SET {name} = '{value}'"
            session.execute(text(change))
    with suppress(ServiceUnavailable), database.autocommit() as session:
        session.execute(_RENEW)


def refuse_missing_limits(settings: Settings, database: Database) -> None:
    """End this starting process (status 78) if its connections through a pooler have not the limits.

    While the database does not answer, it starts and is not ready.
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
