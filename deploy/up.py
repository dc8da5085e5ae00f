"""`make up`: the whole service on one machine, from a checkout and nothing else.

Whatever of DATABASE_URL, REDIS_URL and BLOB_STORE is set is used; for the rest real servers run under `$QM_HOME`.
Then: migrate, create the first owner, run the Procfile's processes, wait until they are ready, and keep them running.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import sys
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.embedded.postgres import OWNER, EmbeddedPostgres
from deploy.embedded.valkey import EmbeddedValkey
from deploy.embedded.wheels import StartFailed
from deploy.home import Home, HomeInUse
from deploy.launch import bind_to_parent
from deploy.processes import Program
from deploy.supervisor import GaveUp, Interrupted, Supervisor

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 90.0
RELEASE_SECONDS = 300.0
WORKER_STAGE, BEAT_STAGE, WEB_STAGE = 2, 3, 4  # stopped in reverse; Postgres is 0, Valkey 1
STOP_SECONDS = {WORKER_STAGE: 30.0, BEAT_STAGE: 5.0, WEB_STAGE: 35.0}


class CannotStart(Exception):
    """The surroundings do not allow a start; the message says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the front listens."""

    host: str
    port: int

    @property
    def reachable_host(self) -> str:
        """A host to connect to from this machine."""
        return "127.0.0.1" if self.host in ("", "0.0.0.0", "[::]") else self.host  # noqa: S104


def main() -> None:
    """Run until asked to stop; the exit status is 0 then, and 1 if the service could not start."""
    if "MAKELEVEL" in os.environ:
        bind_to_parent(signal.SIGTERM)
    supervisor = Supervisor()
    supervisor.listen()
    try:
        status = _run(supervisor, dict(os.environ))
    finally:
        supervisor.stop_all()
    sys.exit(status)


def _run(supervisor: Supervisor, environment: dict[str, str]) -> int:
    try:
        address = _listening_address(environment)
        home = Home(Path(environment.get("QM_HOME") or ROOT / "var"))
        home.claim()
        home.empty_metrics()
        _require_free(address)
        environment |= _settings(supervisor, environment, home, address)
        _release(supervisor, environment, home)
        _start_processes(supervisor, environment)
        _wait_until_ready(supervisor, address)
        supervisor.announce(f"Quartermaster is ready at {environment['BASE_URL']}")
        supervisor.run()
    except Interrupted:
        supervisor.say("stopping")
        return 0
    except (CannotStart, GaveUp, HomeInUse, StartFailed) as error:
        supervisor.say(str(error))
        return 1


def _listening_address(environment: Mapping[str, str]) -> Address:
    bind = environment.get("WEB_BIND") or f"127.0.0.1:{environment.get('PORT') or 8080}"
    host, _, port = bind.rpartition(":")
    if not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise CannotStart(f"PORT or WEB_BIND is not usable: {bind!r}; say for example PORT=8080")
    return Address(host=host, port=int(port))


def _require_free(address: Address) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.reachable_host, address.port))
        except OSError as error:
            raise CannotStart(
                f"Port {address.port} is not free ({error.strerror}); choose another: make up PORT={address.port + 1}"
            ) from error


def _settings(
    supervisor: Supervisor, environment: Mapping[str, str], home: Home, address: Address
) -> dict[str, str]:
    """Start the servers that the environment does not name, and complete the environment with their addresses."""
    makers: dict[str, Callable[[], str]] = {
        "PORT": lambda: str(address.port),
        "QM_HOME": lambda: str(home.directory),
        "DATABASE_URL": lambda: _start_postgres(supervisor, home),
        "REDIS_URL": lambda: _start_valkey(supervisor, home),
        "BLOB_STORE": home.blobs.as_uri,
        "BASE_URL": lambda: f"http://{address.reachable_host}:{address.port}",
        "ENCRYPTION_KEYS": home.encryption_keys,
        "PROMETHEUS_MULTIPROC_DIR": lambda: str(home.metrics),
        "PYTHONUNBUFFERED": lambda: "1",
    }
    settings = {name: environment.get(name) or make() for name, make in makers.items()}
    path = f"{Path(sys.executable).parent}{os.pathsep}{environment.get('PATH', os.defpath)}"
    return settings | {"PATH": path}


def _start_postgres(supervisor: Supervisor, home: Home) -> str:
    server = EmbeddedPostgres(home.postgres)
    supervisor.start(server.program())
    supervisor.run_until(server.is_ready, what="Postgres", timeout_seconds=START_SECONDS)
    return server.create_database(OWNER)


def _start_valkey(supervisor: Supervisor, home: Home) -> str:
    server = EmbeddedValkey(home.valkey)
    server.claim_port()
    supervisor.start(server.program())
    supervisor.run_until(server.is_ready, what="Valkey", timeout_seconds=START_SECONDS)
    return server.url


def _release(supervisor: Supervisor, environment: Mapping[str, str], home: Home) -> None:
    release = Program(name="release", command=_procfile()["release"], environment=environment, directory=ROOT)
    supervisor.run_to_end(release, timeout_seconds=RELEASE_SECONDS)
    command = ("quartermaster", "bootstrap", "--credentials", str(home.credentials))
    bootstrap = Program(name="bootstrap", command=command, environment=environment, directory=ROOT)
    supervisor.run_to_end(bootstrap, timeout_seconds=RELEASE_SECONDS)


def _start_processes(supervisor: Supervisor, environment: Mapping[str, str]) -> None:
    for name, command in _procfile().items():
        if name != "release":
            stage = _stage(name)
            supervisor.start(
                Program(
                    name=name,
                    command=command,
                    environment=environment,
                    directory=ROOT,
                    stage=stage,
                    stop_seconds=STOP_SECONDS[stage],
                )
            )


def _stage(name: str) -> int:
    if name == "web":
        return WEB_STAGE
    return BEAT_STAGE if name == "beat" else WORKER_STAGE


def _procfile() -> dict[str, tuple[str, ...]]:
    lines = (line.partition(":") for line in (ROOT / "Procfile").read_text().splitlines())
    return {name.strip(): tuple(shlex.split(command)) for name, _, command in lines if command.strip()}


def _wait_until_ready(supervisor: Supervisor, address: Address) -> None:
    url = f"http://{address.reachable_host}:{address.port}/readyz"

    def is_ready() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return True
        except OSError:  # refused, cut off, or an answer other than 2xx
            return False

    supervisor.run_until(is_ready, what="The service", timeout_seconds=START_SECONDS)


if __name__ == "__main__":
    main()
