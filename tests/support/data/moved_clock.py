"""A Postgres database whose clock a test advances: `now()` and `clock_timestamp()` add the offset in a row.

The replacing functions stand in a schema before Postgres' own in the search path, where statements and server-side
functions find them. Defaults of columns are rebound to them.
"""

from datetime import datetime, timedelta

import psycopg2
from sqlalchemy import text

from deploy.embedded.postgres import EmbeddedPostgres
from shared.db.database import Database

_CLOCK = """
CREATE SCHEMA moved_clock;
CREATE TABLE moved_clock.setting AS SELECT interval '0' AS later_by;
CREATE FUNCTION moved_clock.now() RETURNS timestamptz LANGUAGE sql STABLE
    AS 'SELECT pg_catalog.now() + later_by FROM moved_clock.setting';
CREATE FUNCTION moved_clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql
    AS 'SELECT pg_catalog.clock_timestamp() + later_by FROM moved_clock.setting';
GRANT USAGE ON SCHEMA moved_clock TO PUBLIC;
GRANT SELECT, UPDATE ON moved_clock.setting TO PUBLIC;
SET search_path = moved_clock, pg_catalog, public;
DO $$
DECLARE d record;
BEGIN
    EXECUTE 'ALTER DATABASE ' || quote_ident(current_database())
        || ' SET search_path = moved_clock, pg_catalog, public';
    FOR d IN
        SELECT c.oid::regclass AS relation, a.attname AS name FROM pg_attrdef f
        JOIN pg_attribute a ON a.attrelid = f.adrelid AND a.attnum = f.adnum JOIN pg_class c ON c.oid = f.adrelid
        WHERE pg_get_expr(f.adbin, f.adrelid) IN ('now()', 'pg_catalog.now()')
    LOOP
        EXECUTE 'ALTER TABLE ' || d.relation || ' ALTER ' || quote_ident(d.name) || ' SET DEFAULT now()';
    END LOOP;
END $$;
"""


class MovedClock:
    """The clock of a database; it applies to connections opened after its creation."""

    def __init__(self, server: EmbeddedPostgres, database: Database) -> None:
        owner = psycopg2.connect(server.migrations_url(str(database.engine.url.database)))
        with owner, owner.cursor() as cursor:
            cursor.execute(_CLOCK)
        owner.close()
        database.engine.dispose()
        self._database = database

    def move(self, by: timedelta) -> None:
        """Advance the clock by a duration."""
        with self._database.transaction() as session:
            session.execute(text("UPDATE moved_clock.setting SET later_by = later_by + :by"), {"by": by})

    def move_to(self, moment: datetime) -> None:
        """Advance the clock to a time."""
        self.move(moment - self.now)

    @property
    def now(self) -> datetime:
        """Return the database's current time."""
        with self._database.autocommit() as session:
            moment = session.execute(text("SELECT now()")).scalar_one()
        assert isinstance(moment, datetime)
        return moment
