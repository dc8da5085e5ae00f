"""Grant the processes' role access to the rows of a schema that another role migrates, and nothing else.

If one role does both, nothing is granted. Default privileges cover tables of later migrations, because processes of a
release may start before its grants are made.
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
    """Return the role that a URL connects as, which the URL need not name."""
    with engine.connect() as connection:
        return str(connection.execute(text("SELECT current_user")).scalar_one())


def grant_access(engine: Engine, role: str) -> None:
    """Grant a role the rows of the migrated schema; nothing if it owns the schema.

    Concurrent runs wait for each other: Postgres fails if the same grant is made twice at once.
    """
    if role == current_role(engine):
        return
    quoted = engine.dialect.identifier_preparer.quote_identifier(role)
    with engine.begin() as connection:
        begin_alone(connection)
        for grant in _GRANTS:
            connection.execute(text(grant.format(role=quoted)))
