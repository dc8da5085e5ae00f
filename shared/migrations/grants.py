"""Let the role that the processes use work with what another role has migrated: rows, and nothing else.

Where one role does both there is nothing to grant. Tables of later migrations are covered too, by default privileges,
because processes of a release may start before the grants of the next one are made.
"""

from sqlalchemy import Engine, text

from shared.migrations.runner import begin_alone

_GRANTS = (
    "GRANT USAGE ON SCHEMA public TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}",
    "GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {role}",
    "GRANT EXECUTE ON ALL ROUTINES IN SCHEMA public TO {role}",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {role}",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO {role}",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT EXECUTE ON ROUTINES TO {role}",
    "REVOKE INSERT, UPDATE, DELETE ON alembic_version FROM {role}",
)


def current_role(engine: Engine) -> str:
    """Give the role that an address connects as, which need not stand in the address."""
    with engine.connect() as connection:
        return str(connection.execute(text("SELECT current_user")).scalar_one())


def grant_access(engine: Engine, role: str) -> None:
    """Grant a role the rows of the migrated schema; nothing where it is the migrations' own.

    Two runs at once wait for each other: Postgres refuses to grant the same twice at a time.
    """
    if role == current_role(engine):
        return
    quoted = engine.dialect.identifier_preparer.quote_identifier(role)
    with engine.begin() as connection:
        begin_alone(connection)
        for grant in _GRANTS:
            connection.execute(text(grant.format(role=quoted)))
