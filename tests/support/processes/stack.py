"""The whole service as real processes, for journeys and chaos: durable Postgres, Valkey, web processes, workers, beat.

Each process runs its production command (in tests by fork: `process_forks.py`), with an environment that a test
chooses, such as armed `FAULTS`. Each can be killed and restarted separately. Everything lives in one directory and on
free ports, and dies with the thread that started it: use a thread that lives long enough (see
`deploy.supervision.child_processes`).
"""

import contextlib
import http.client
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

from cryptography.fernet import Fernet

from deploy.cli.first_run import first_run
from deploy.embedded.ports import find_free_port
from deploy.embedded.postgres import SUPERUSER, EmbeddedPostgres
from deploy.embedded.valkey import EmbeddedValkey
from deploy.process_types import beat_command, web_command, worker_command
from deploy.supervision.child_processes import Program, kill, stop
from shared.config.settings import load_settings
from shared.db.database import Database
from tests.support.processes import process_forks
from tests.support.servers.prepared_postgres import make_template, start_prepared
from tests.support.servers.rabbitmq import RabbitMQ

PATIENCE_SECONDS = 90.0
ROOT = Path(__file__).resolve().parents[3]
FOREIGN = (
    "DATABASE_URL",
    "MIGRATIONS_DATABASE_URL",
    "REDIS_URL",
    "BROKER_URL",
    "MODELS_REDIS_URL",
    "BLOB_STORE",
    "BASE_URL",
    "QM_HOME",
    "PORT",
    "WEB_BIND",
    "FAULTS",
)
ChangeCommand = Callable[[Sequence[str]], Sequence[str]]


class TookTooLong(AssertionError):
    """A condition did not become true before the timeout."""


def wait_until(condition: Callable[[], object], what: str, *, seconds: float = PATIENCE_SECONDS) -> None:
    """Poll until the condition holds; raise `TookTooLong` after the timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TookTooLong(what)
        time.sleep(0.02)


free_port = find_free_port


class Servers:
    """A durable Postgres, a Valkey, and a second one for model calls, which can be killed and restarted."""

    def __init__(self, directory: Path, *, rabbitmq: RabbitMQ | None = None) -> None:
        self.directory = directory
        self.rabbitmq = rabbitmq
        self.postgres = EmbeddedPostgres(directory / "postgres", durable=True)
        self.valkey = EmbeddedValkey(directory / "valkey")
        self.valkey_models = EmbeddedValkey(directory / "valkey-models", is_persistent=False)
        self.valkeys = (self.valkey, self.valkey_models)
        self.installations = itertools.count()
        self._template: str | None = None

    def start(self) -> None:
        start_prepared(self.postgres)
        for valkey in self.valkeys:
            valkey.start()
        if self.rabbitmq is not None:
            self.rabbitmq.start()

    def create_database(self, name: str) -> str:
        """Create a database with the newest schema, cloned from a template; return the service's URL for it."""
        if self._template is None:
            self._template = make_template(self.postgres)
        return self.postgres.create_database(name, template=self._template)

    def new_redis_url(self) -> str:
        """Return the URL of an unused database of the Valkey."""
        return self.valkey.url.rpartition("/")[0] + f"/{next(self.installations)}"

    def stop(self) -> None:
        for valkey in self.valkeys:
            valkey.kill()
        if self.rabbitmq is not None:
            self.rabbitmq.stop()
        self.postgres.stop()


class Service:
    """One process of the service."""

    def __init__(
        self, program: Program, *, port: int | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        assert program.log is not None
        self.name = program.name
        self.port = port
        self.settings = settings or {}
        self.log = program.log
        self._address = "127.0.0.1"
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{self._address}:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        return None if self._process is None else self._process.returncode

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def place(self, address: str, prefix: tuple[str, ...]) -> Self:
        """Run the process on another host, whose network the command prefix enters."""
        self._address, self._program = address, replace(self._program, prefix=prefix)
        return self

    def start(self) -> None:
        """Start without waiting; output is appended to the log."""
        self._process = process_forks.start(self._program)

    def kill(self) -> None:
        """Kill the process and its children by SIGKILL."""
        if self._process is not None:
            kill(self._process)

    def send_signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def terminate(self) -> bool:
        """Send SIGTERM and wait. Return whether the process ended by itself."""
        return self._process is None or stop(self._process, self._program)

    def wait_for_end(self, *, seconds: float = PATIENCE_SECONDS) -> int:
        """Wait until the process has ended; return its status, negative for a signal."""
        assert self._process is not None
        return self._process.wait(seconds)

    def is_answering(self) -> bool:
        """Return whether this web process responds."""
        connection = http.client.HTTPConnection(self._address, self.port, timeout=60)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/healthz")
            return connection.getresponse().status == http.HTTPStatus.OK
        return False

    def wait_until_answering(self) -> None:
        wait_until(self.is_answering, f"{self.name} answers; see {self.log}")

    def has_logged(self, text: str) -> bool:
        return self.log.exists() and text in self.log.read_text(errors="replace")


class Stack:
    """One installation of the service over `servers`: its own databases and store, and any number of processes."""

    def __init__(
        self,
        directory: Path,
        servers: Servers,
        *,
        blob_store: str | None = None,
        settings: Mapping[str, str] | None = None,
        change_command: ChangeCommand | None = None,
        broker_url: str | None = None,
    ) -> None:
        self.directory = directory
        self._change_command = change_command
        self.servers = servers
        self.blobs = directory / "blobs"
        self._started: list[Service] = []
        directory.mkdir(parents=True, exist_ok=True)
        number = next(servers.installations)
        name = f"quartermaster_{number}"
        self.database_url = servers.create_database(name)
        self.administrator_url = servers.postgres.database_url(name, role=SUPERUSER)
        self.redis_url = servers.valkey.url.rpartition("/")[0] + f"/{number}"
        self.models_redis_url = servers.valkey_models.url.rpartition("/")[0] + f"/{number}"
        if broker_url is None and servers.rabbitmq is not None:
            broker_url = servers.rabbitmq.new_installation_url()
        self.broker_url = broker_url or self.redis_url
        self.web_port = free_port()
        inherited = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        self.environment = inherited | {
            "DATABASE_URL": self.database_url,
            "REDIS_URL": self.redis_url,
            **({} if broker_url is None else {"BROKER_URL": broker_url}),
            "MODELS_REDIS_URL": self.models_redis_url,
            "BLOB_STORE": blob_store or self.blobs.as_uri(),
            "BASE_URL": f"http://127.0.0.1:{self.web_port}",
            "ENCRYPTION_KEYS": Fernet.generate_key().decode(),
            "QM_HOME": str(directory),
            "PYTHONUNBUFFERED": "1",
            "WEB_PROCESSES": "1",
            "WEB_THREADS": "64",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            **(settings or {}),
        }

    def set_up(self) -> dict[str, Any]:
        """Create the first owner, as the first start does; return the credentials, which are shown once.

        This runs in the test's process, because starting the command takes much longer than its work.
        """
        credentials = self.directory / "credentials.json"
        with patch.dict(os.environ, self.environment, clear=True):
            settings = load_settings()
        database = Database.of(settings, pool_size=2)
        try:
            first_run(database, settings, credentials)
        finally:
            database.dispose()
        document: dict[str, Any] = json.loads(credentials.read_text())
        return document

    def web(self, *, port: int | None = None, **settings: str) -> Service:
        """Describe a web process; links point to the first one, which has no port given."""
        return self.web_by(web_command(), port=port or self.web_port, settings=settings)

    def web_by(self, command: list[str], *, port: int, settings: Mapping[str, str]) -> Service:
        """Describe a web process with another command."""
        return self._service(f"web-{port}", command, {"PORT": str(port), **settings}, port=port)

    def worker(self, name: str, **settings: str) -> Service:
        """Describe a worker, `files` or `background`."""
        command = worker_command(name, self.environment | settings)
        return self._service(f"worker-{name}", command, settings)

    def beat(self, **settings: str) -> Service:
        """Describe a beat."""
        environment = self.environment | settings
        return self._service("beat", beat_command(environment), settings)

    @contextlib.contextmanager
    def running(self, *services: Service) -> Iterator[None]:
        """Run these services within the block; web processes respond when it begins, and all are killed at its end."""
        try:
            for service in services:
                service.start()
            for service in services:
                if service.port is not None:
                    service.wait_until_answering()
            yield
        finally:
            for service in services:
                service.kill()

    def kill_all(self) -> None:
        """Kill every process that this stack has started."""
        for service in self._started:
            service.kill()

    def _service(
        self, name: str, command: list[str], settings: Mapping[str, str], *, port: int | None = None
    ) -> Service:
        number = len(self._started)
        program = Program(
            name=name,
            command=tuple(command),
            environment=self.environment | dict(settings),
            directory=ROOT,
            log=self.directory / f"{number:03d}-{name}.log",
            stop_seconds=PATIENCE_SECONDS,
        )
        if self._change_command is not None:
            program = replace(program, command=tuple(self._change_command(program.command)))
        service = Service(program, port=port, settings=settings)
        self._started.append(service)
        return service
