"""Run the whole service on one machine from a checkout (`make up`).

If DATABASE_URL, REDIS_URL or MODELS_REDIS_URL is unset, start the missing server with its data under `$QM_HOME`. If
BLOB_STORE is unset, create a directory there. Then migrate the database, create the first owner, and start the
processes of the Procfile. Wait until the processes are ready, and keep them running until a stop signal.
"""

import contextlib
import http.client
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import click

from deploy.embedded.home import DEFAULT, Home, HomeInUse
from deploy.embedded.ports import find_free_port, is_free
from deploy.embedded.postgres import DATABASE, EmbeddedPostgres
from deploy.embedded.startup_summary import IssueLink, ProgramLogs, issue_link, step, summary
from deploy.embedded.valkey import EmbeddedValkey
from deploy.embedded.wheels import StartFailed
from deploy.supervision.child_processes import Program
from deploy.supervision.launcher import bind_to_parent
from deploy.supervision.supervisor import Interrupted, ProgramFailed, Supervisor
from shared.config.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
BOOTSTRAP = ("quartermaster", "bootstrap", "--credentials")
MIGRATIONS = "MIGRATIONS_DATABASE_URL"
START_SECONDS = 90.0
RELEASE_SECONDS = 300.0
POLL_SECONDS = 0.5
WORKER_STAGE, BEAT_STAGE, WEB_STAGE = 2, 3, 4  # stopped in reverse; Postgres is 0, Valkey 1
STOP_SECONDS = {WORKER_STAGE: 30.0, BEAT_STAGE: 5.0, WEB_STAGE: 35.0}


class _Throttled:
    """A check that runs at most every `seconds`, and returns False if it is called earlier.

    The supervisor checks again after each line of output. A readiness check makes a web process log a line, so without
    the limit the checks would never pause.
    """

    def __init__(self, check: Callable[[], bool], *, seconds: float) -> None:
        self._check, self._seconds = check, seconds
        self._checked_at = 0.0

    def __call__(self) -> bool:
        if time.monotonic() - self._checked_at < self._seconds:
            return False
        self._checked_at = time.monotonic()
        return self._check()


class CannotStart(Exception):
    """The service cannot start in this environment. The message says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The host and port at which the web process listens."""

    host: str
    port: int

    @property
    def reachable_host(self) -> str:
        """The host name with which clients on this machine can connect."""
        return "127.0.0.1" if self.host in ("", "0.0.0.0", "[::]") else self.host  # noqa: S104


def main(*, root: Path = ROOT, bootstrap: tuple[str, ...] = BOOTSTRAP, link: IssueLink = issue_link) -> None:
    """Run the Procfile in `root` until a stop signal. Exit with 1 if the service could not start.

    `bootstrap` is a command that creates the first owner unless an owner exists. The path of the credentials file is
    appended to the command.
    """
    # Ask the kernel to stop this process if `make` is killed: otherwise it would continue without a terminal.
    if "MAKELEVEL" in os.environ:
        bind_to_parent(signal.SIGTERM)
    home = Home(Path(os.environ.get("QM_HOME") or root / DEFAULT.name))
    logs = ProgramLogs(home.logs) if sys.stdout.isatty() else None
    supervisor = Supervisor(record=logs.write if logs else None)
    supervisor.install_signal_handlers()
    try:
        running = _start(supervisor, home, root, bootstrap)
        if logs:
            text = summary(
                running["BASE_URL"],
                link=link(running),
                credentials=home.credentials,
                logs=home.logs,
                command=_command_line(home, root),
            )
            supervisor.print_line(text)
        supervisor.run()
    except Interrupted:
        supervisor.log("stopping")
    except (CannotStart, ProgramFailed, HomeInUse, StartFailed) as error:
        for line in logs.last if logs else ():
            supervisor.print_line(line)
        supervisor.log(str(error))
        sys.exit(1)
    finally:
        # Stop all programs after an interrupted start too, so that servers that have started do not stay.
        supervisor.stop_all()
        home.remove_metrics_directory()
        if logs:
            logs.close()


def _print_step(text: str) -> None:
    """Print a finished step at a terminal. Without a terminal, print nothing, because the logs report the step."""
    if sys.stdout.isatty():
        click.echo(step(text))


def _command_line(home: Home, root: Path) -> str:
    """Return the command line of `quartermaster` for this home and the current directory."""
    command = Path(sys.executable).parent / "quartermaster"
    called = os.path.relpath(command) if command.is_relative_to(Path.cwd()) else str(command)
    is_default = home.directory == (root / DEFAULT.name).absolute()
    return called if is_default else f"QM_HOME={shlex.quote(str(home.directory))} {called}"


def _start(supervisor: Supervisor, home: Home, root: Path, bootstrap: tuple[str, ...]) -> dict[str, str]:
    """Start all servers and processes. When the service is ready, return the environment of its processes."""
    # Claim the home first: if another installation runs in it, every later step would fail for unclear reasons.
    address = _listening_address(os.environ)
    home.claim()
    _require_free(address)
    settings = _settings(supervisor, os.environ, home, address)
    environment = dict(os.environ) | settings
    home.write_settings(
        {name: environment[name] for name in map(str.upper, Settings.model_fields) if name in environment}
    )
    # Pass the migration credentials only to the release process: no other process may change the schema.
    release_environment = environment | _migrations_address(settings, home)
    environment.pop(MIGRATIONS, None)
    programs = _programs(root, environment)
    release = replace(programs.pop("release"), environment=release_environment)
    supervisor.run_to_end(release, timeout_seconds=RELEASE_SECONDS)
    _print_step("database schema")
    # Start this command without an operations port, because it would occupy the web process's port.
    first_owner = _program(
        "bootstrap", (*bootstrap, str(home.credentials)), root, _with_operations_port(None, environment)
    )
    supervisor.run_to_end(first_owner, timeout_seconds=RELEASE_SECONDS)
    for program in programs.values():
        supervisor.start(program)
    _print_step(", ".join(programs))
    is_ready = _Throttled(lambda: _is_ready(address), seconds=POLL_SECONDS)
    # Check is_steady too: the web process may be ready while a worker fails repeatedly.
    supervisor.run_until(
        lambda: supervisor.is_steady() and is_ready(), what="The service", timeout_seconds=START_SECONDS
    )
    if environment["OPERATIONS_PORT"]:
        ports = ", ".join(
            f"{(each.environment or {})['OPERATIONS_PORT']} ({name})" for name, each in programs.items()
        )
        supervisor.log(f"/healthz, /readyz and /metrics are at 127.0.0.1, on ports {ports}")
    supervisor.print_line(f"Quartermaster is ready at {environment['BASE_URL']}")
    return environment


def _listening_address(environment: Mapping[str, str]) -> Address:
    bind = environment.get("WEB_BIND") or f"127.0.0.1:{environment.get('PORT') or 8080}"
    host, _, port = bind.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise CannotStart(f"PORT or WEB_BIND is invalid: {bind!r}; set for example PORT=8080")
    return Address(host=host, port=int(port))


def _require_free(address: Address) -> None:
    with socket.socket() as probe:
        # Set SO_REUSEADDR: connections of an earlier run that are in TIME_WAIT must not count as an occupied port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.reachable_host, address.port))
        except OSError as error:
            remedy = f"choose another, for example: make up PORT={address.port + 1}"
            raise CannotStart(f"Port {address.port} is not free ({error.strerror}); {remedy}") from error


def _operations_port(environment: Mapping[str, str], address: Address) -> str:
    """Return the operations port of the web process: PORT + 1000 if free, or "" if OPERATIONS_BIND is set."""
    if environment.get("OPERATIONS_BIND"):
        return ""
    wanted = address.port + 1000 if address.port + 1000 < 1 << 16 else address.port - 1000
    return str(wanted if is_free(wanted) else find_free_port())


def _settings(
    supervisor: Supervisor, environment: Mapping[str, str], home: Home, address: Address
) -> dict[str, str]:
    """Return the settings that the environment lacks, after starting a server for each unset URL."""
    # Evaluate in this order: a setting may need a server that an earlier setting has started.
    defaults: dict[str, Callable[[], str]] = {
        "PORT": lambda: str(address.port),
        "QM_HOME": lambda: str(home.directory),
        "DATABASE_URL": lambda: _start_postgres(supervisor, home),
        "REDIS_URL": lambda: _start_valkey(
            supervisor, EmbeddedValkey(home.valkey), description=f"Valkey, in {home.valkey}"
        ),
        "MODELS_REDIS_URL": lambda: _start_valkey(
            supervisor,
            EmbeddedValkey(home.valkey_models, is_persistent=False),
            description="Valkey for model calls, which writes nothing to a disk",
        ),
        "BLOB_STORE": home.blobs.as_uri,
        "BASE_URL": lambda: f"http://{address.reachable_host}:{address.port}",
        "ENCRYPTION_KEYS": home.encryption_keys,
        "OPERATIONS_PORT": lambda: _operations_port(environment, address),
        "METRICS_DIRECTORY": lambda: str(home.make_metrics_directory()),
        # Disable buffering: the output is a pipe, and Python would otherwise write lines in large blocks.
        "PYTHONUNBUFFERED": lambda: "1",
    }
    # Put this environment's programs first, so that the Procfile's `quartermaster` is the one of this checkout.
    path = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', os.defpath)}"
    return {name: environment.get(name) or default() for name, default in defaults.items()} | {"PATH": path}


def _migrations_address(settings: Mapping[str, str], home: Home) -> dict[str, str]:
    """Return MIGRATIONS_DATABASE_URL if Postgres is embedded, or no variable if the operator set DATABASE_URL."""
    server = EmbeddedPostgres(home.postgres)
    is_own = settings["DATABASE_URL"] == server.database_url(DATABASE)
    return {MIGRATIONS: server.migrations_url(DATABASE)} if is_own else {}


def _start_postgres(supervisor: Supervisor, home: Home) -> str:
    server = EmbeddedPostgres(home.postgres)
    supervisor.start(server.program())
    supervisor.run_until(server.is_ready, what="Postgres", timeout_seconds=START_SECONDS)
    _print_step(f"Postgres, in {home.postgres}")
    return server.create_database(DATABASE)


def _start_valkey(supervisor: Supervisor, server: EmbeddedValkey, *, description: str) -> str:
    server.ensure_port()
    supervisor.start(server.program())
    supervisor.run_until(server.is_ready, what="Valkey", timeout_seconds=START_SECONDS)
    _print_step(description)
    return server.url


def _programs(root: Path, environment: Mapping[str, str]) -> dict[str, Program]:
    """Return the processes of the Procfile, each with an operations port. A line is `name: command`, without shell."""
    lines = (line.partition(":") for line in (root / "Procfile").read_text().splitlines() if line.strip())
    commands = {name: tuple(shlex.split(command)) for name, _, command in lines}
    others = [name for name in commands if name not in ("release", "web")]
    ports = dict(zip(others, _ports_above(environment.get("OPERATIONS_PORT"), len(others)), strict=True))
    return {
        name: _program(
            name,
            command,
            root,
            environment if name == "web" else _with_operations_port(ports.get(name), environment),
        )
        for name, command in commands.items()
    }


def _ports_above(first: str | None, count: int) -> list[str]:
    """Return `count` ports after `first`. A random port replaces a used one. Without `first`, return empty texts."""
    wanted = range(int(first or 0) + 1, int(first or 0) + 1 + count)
    return [
        str(port if port < 1 << 16 and is_free(port) else find_free_port()) if first else ""
        for port in wanted
    ]


def _with_operations_port(operations_port: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Return a process's environment with its own operations port, or without one. Not for the web process."""
    own = {key: environment[key] for key in environment if not key.startswith("OPERATIONS_")}
    return own | ({"OPERATIONS_PORT": operations_port} if operations_port else {})


def _program(name: str, command: tuple[str, ...], root: Path, environment: Mapping[str, str]) -> Program:
    stage = {"web": WEB_STAGE, "beat": BEAT_STAGE}.get(name, WORKER_STAGE)
    return Program(
        name=name,
        command=command,
        environment=environment,
        directory=root,
        stage=stage,
        stop_seconds=STOP_SECONDS[stage],
    )


def _is_ready(address: Address) -> bool:
    connection = http.client.HTTPConnection(address.reachable_host, address.port, timeout=2)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.HTTPStatus.OK
    return False


if __name__ == "__main__":
    main()
