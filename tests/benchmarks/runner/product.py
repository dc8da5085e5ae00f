"""The measured product: the processes of `make up` with their own defaults, durable Postgres, Valkey.

`Bench` creates each part when the first row needs it, and ends everything when it is closed.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from uuid import uuid4

from deploy.embedded.postgres import SUPERUSER
from deploy.process_types import ALLOCATOR
from shared.db.database import Database
from shared.migrations.runner import migrate
from tests.benchmarks.clients import Connection, multipart_frame, request_head
from tests.benchmarks.peers.file_servers import copyparty, rclone
from tests.benchmarks.peers.nginx import Nginx
from tests.benchmarks.peers.servers import is_usable
from tests.benchmarks.runner.measurements import CpuMeter
from tests.support.agents.rest_clients import exchange_token
from tests.support.processes.stack import Servers, Service, Stack, free_port

DEFAULTS = {"WEB_PROCESSES": "", "WEB_THREADS": "", "ACCESS_TOKEN_SECONDS": "7200"}
MANY_IMPORTS = {"QUEUED_IMPORTS": "10000"}
BLOCK_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """A running web process and a caller."""

    service: Service
    stack: Stack
    token: str
    daemon_id: str
    organization_id: str
    distribution: Mapping[str, str]
    workers: Sequence[Service] = ()

    @property
    def port(self) -> int:
        assert self.service.port is not None
        return self.service.port

    def head(
        self, method: str, path: str, *, token: str | None = None, length: int = 0, **headers: str
    ) -> bytes:
        """Return the head of a request by the caller, or with another token."""
        authorization = f"Bearer {token or self.token}"
        return request_head(method, path, length=length, Authorization=authorization, **headers)

    def upload_frame(self, byte_size: int) -> tuple[bytes, bytes]:
        """Return the bytes around the content of a new upload: the request up to it, and what follows."""
        head, tail = multipart_frame()
        request = self.head(
            "POST",
            f"/files/agent-artifacts?operationId={uuid4()}&byteSize={byte_size}",
            length=len(head) + byte_size + len(tail),
            Content_Type="multipart/form-data; boundary=quartermaster-benchmark",
        )
        return request + head, tail

    def upload(self, content: bytes) -> bytes:
        """Return the bytes of a whole upload."""
        head, tail = self.upload_frame(len(content))
        return head + content + tail


class Bench:
    """One run of benchmarks in a directory of its own."""

    def __init__(self, directory: Path, peers: Path, *, quick: bool) -> None:
        self.directory = directory
        self.quick = quick
        self.peers = peers
        self._closing = contextlib.ExitStack()

    def scaled(self, full: int, quick: int) -> int:
        """Return a size: the smaller one in the quick form."""
        return quick if self.quick else full

    def close(self) -> None:
        """End every process."""
        self._closing.close()

    @cached_property
    def servers(self) -> Servers:
        """Durable Postgres, and Valkey."""
        servers = Servers(self.directory / "servers")
        servers.start()
        self._closing.callback(servers.stop)
        return servers

    @cached_property
    def front(self) -> Front:
        """The whole service: web processes, workers and beat."""
        stack = self._stack("quartermaster")
        credentials = stack.set_up()
        workers = (stack.worker("files"), stack.worker("background"), stack.beat())
        return self._run(stack, credentials, stack.web(), *workers)

    @cached_property
    def media_front(self) -> Front:
        """A service that also fetches from this machine, and permits as many pending imports as a row pushes."""
        stack = self._stack("media", EGRESS_ALLOW_PRIVATE="true", EGRESS_ALLOW_HTTP="true", **MANY_IMPORTS)
        workers = (stack.worker("files"), stack.worker("media"), stack.beat())
        return self._run(stack, stack.set_up(), stack.web(), *workers)

    @cached_property
    def proxied_front(self) -> Front:
        """Another web process of the same service, which leaves sending content to nginx."""
        port = free_port()
        service = self.front.stack.web(port=port, X_ACCEL_PREFIX="/_blobs", WEB_PROCESSES="1")
        service.start()
        self._closing.callback(service.kill)
        service.wait_until_answering()
        return Front(
            service=service,
            stack=self.front.stack,
            token=self.front.token,
            daemon_id=self.front.daemon_id,
            organization_id=self.front.organization_id,
            distribution=self.front.distribution,
        )

    def lone_front(self, name: str) -> Front:
        """A web process over a database of its own, without workers."""
        stack = self._stack(name)
        return self._run(stack, stack.set_up(), stack.web())

    @cached_property
    def nginx(self) -> Nginx | None:
        """Start nginx over a directory for PUT, the blobs and the proxied web process. None without nginx."""
        nginx = Nginx.find(self.directory / "nginx")
        if nginx is None:
            return None
        nginx.start(blobs=self.front.stack.blobs, front_port=self.proxied_front.port)
        self._closing.callback(nginx.stop)
        return nginx

    @cached_property
    def file_servers(self) -> Mapping[str, Service]:
        """Start copyparty and rclone, if they can be installed."""
        found = {}
        for name, describe in (("copyparty", copyparty), ("rclone", rclone)):
            server = describe(self.peers, self.directory / name, free_port())
            if server is None:
                continue
            server.start()
            self._closing.callback(server.kill)
            if is_usable(server):
                found[name] = server
        return found

    def meter(self, front: Front | None = None) -> CpuMeter:
        """Measure the CPU of the service, by part."""
        front = front or self.front
        pids: dict[str, Sequence[int]] = {
            "web": [front.service.pid],
            "postgres": [server_pid(self.servers.postgres)],
            "valkey": [server_pid(self.servers.valkey)],
        }
        if front.workers:
            pids["workers"] = [worker.pid for worker in front.workers]
        return CpuMeter(pids)

    @property
    def postgres_pid(self) -> int:
        return server_pid(self.servers.postgres)

    def migrated_database(self, name: str) -> str:
        """Create a database of this name with the newest schema, if it does not exist. Return its URL."""
        self.servers.postgres.create_database(name)
        # The benchmarks create tables, so they connect as the owner.
        url = self.servers.postgres.database_url(name, role=SUPERUSER)
        database = Database(url.replace("postgresql://", "postgresql+psycopg2://", 1), pool_size=1)
        migrate(database.engine)
        database.dispose()
        return url

    def content_file(self, size_bytes: int) -> Path:
        """Create a file of this many pseudo-random bytes, kept in the page cache."""
        path = self.directory / f"content-{size_bytes}"
        if not path.exists():
            block = os.urandom(BLOCK_BYTES)
            with path.open("wb") as file:
                for start in range(0, size_bytes, BLOCK_BYTES):
                    file.write(block[: min(BLOCK_BYTES, size_bytes - start)])
        return path

    def _stack(self, name: str, **settings: str) -> Stack:
        return Stack(self.directory / name, self.servers, settings=ALLOCATOR | DEFAULTS | settings)

    def _run(self, stack: Stack, credentials: Mapping[str, object], web: Service, *others: Service) -> Front:
        self._closing.enter_context(stack.running(web, *others))
        deployment, distribution = credentials["deployment"], credentials["distribution"]
        assert isinstance(deployment, dict)
        assert isinstance(distribution, dict)
        return Front(
            service=web,
            stack=stack,
            token=exchange_token(web.url, credentials),
            daemon_id=deployment["daemonIdentityId"],
            organization_id=str(credentials["organizationId"]),
            distribution=distribution,
            workers=others,
        )


def warm_up(front: Front, *, uploads: int = 20) -> None:
    """Make every web process open its connections and fill its caches."""
    for _ in range(4):
        connection = Connection(front.port)
        for _ in range(uploads):
            connection.ask(front.upload(b"warm"), expect=201)
        connection.close()


def server_pid(server: object) -> int:
    process = server._process  # type: ignore[attr-defined]
    assert process is not None
    pid: int = process.pid
    return pid
