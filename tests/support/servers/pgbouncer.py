"""PgBouncer in transaction mode before a test's own Postgres: few server connections for many clients."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg2

from deploy.embedded.ports import find_free_port
from deploy.embedded.postgres import APPLICATION_ROLE, EmbeddedPostgres
from tests.support.processes.stack import wait_until

COMMAND = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
MISSING = "PgBouncer is not installed (Debian: pgbouncer)"
ACCOUNT = "nobody"  # It refuses to run as root.
SERVER_CONNECTIONS = 4


@contextmanager
def running_pooler(postgres: EmbeddedPostgres, database: str) -> Iterator[str]:
    """Run it within the block; yield the service's URL of the database through it."""
    assert COMMAND is not None
    port, sockets = find_free_port(), parse_qs(urlsplit(postgres.url).query)["host"][0]
    with tempfile.TemporaryDirectory(prefix="pooler-") as made:
        directory = Path(made)
        directory.chmod(0o755)
        configuration = _configure(directory, sockets, port)
        _let_in(postgres)
        account = ["-u", ACCOUNT] if os.geteuid() == 0 else []
        with (
            (directory / "log").open("wb") as log,
            subprocess.Popen([COMMAND, *account, str(configuration)], stdout=log, stderr=log) as process,
        ):
            url = f"postgresql://{APPLICATION_ROLE}@127.0.0.1:{port}/{database}"
            try:
                wait_until(lambda: _answers(url), f"PgBouncer answers: {(directory / 'log').read_text()}")
                yield url
            finally:
                process.kill()


def _configure(directory: Path, sockets: str, port: int) -> Path:
    users = directory / "users"
    users.write_text(f'"{APPLICATION_ROLE}" ""\n')
    configuration = directory / "pgbouncer.ini"
    configuration.write_text(
        f"""
[databases]
* = host={sockets}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = {SERVER_CONNECTIONS}
max_client_conn = 200
server_login_retry = 1
query_wait_timeout = 20
"""
    )
    for path in (users, configuration):
        path.chmod(0o644)
    return configuration


def _let_in(postgres: EmbeddedPostgres) -> None:
    """Have Postgres accept the pooler's account, and permit that account to reach the socket."""
    if os.geteuid() != 0:
        return
    with (postgres.directory / "data" / "pg_ident.conf").open("a") as identities:
        identities.write(f"owner {ACCOUNT} {APPLICATION_ROLE}\n")
    connection = psycopg2.connect(postgres.url)
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_reload_conf()")
    connection.close()


def _answers(url: str) -> bool:
    with suppress(psycopg2.OperationalError):
        psycopg2.connect(url, connect_timeout=2).close()
        return True
    return False
