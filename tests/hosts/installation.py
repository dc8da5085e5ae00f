"""One installation over many hosts: servers, web processes behind nginx, workers and beats, placed as operators do."""

import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from deploy.embedded.postgres import EmbeddedPostgres
from deploy.embedded.valkey import EmbeddedValkey
from deploy.process_types import WORKERS
from tests.chaos.supervised_process import SupervisedProcess
from tests.hosts.network import NETWORK, Host
from tests.hosts.s3 import BUCKET, Bucket
from tests.support.processes.stack import Servers, Service, Stack
from tests.support.servers.nginx import nginx_command
from tests.support.servers.rabbitmq import RabbitMQ

FRONT_PORT, EDGE_PORT = 8080, 80
DATABASE_PORT = 5432
SETTINGS = {
    "ACCESS_TOKEN_SECONDS": "86400",  # The clients of a long run do not refresh their tokens.
    "LOG_LEVEL": "INFO",  # A worker logs when it is ready.
    "WEB_DRAIN_SECONDS": "10",
    "WEB_THREADS": "128",
    "MODELS_THREADS": "32",
    "UPLOAD_GRACE_SECONDS": "30",
    "WEB_BIND": f"0.0.0.0:{FRONT_PORT}",
}


class HostServers(Servers):
    """Postgres, two Valkeys, and RabbitMQ if it is the broker, each on a host of its own."""

    def __init__(self, directory: Path, hosts: Mapping[str, Host]) -> None:
        broker = hosts.get(RabbitMQ.name)
        super().__init__(directory, rabbitmq=_rabbitmq(directory, broker) if broker else None)
        at = hosts["postgres"]
        self.postgres = EmbeddedPostgres(
            directory / "postgres",
            address=at.address,
            access=f"host all all {NETWORK} trust\n",
            prefix=at.prefix,
        )
        self.valkey = _valkey(directory / "valkey", hosts["valkey"])
        self.valkey_models = _valkey(directory / "valkey-models", hosts["valkey-models"], is_persistent=False)
        self.valkeys = (self.valkey, self.valkey_models)


def _rabbitmq(directory: Path, host: Host) -> RabbitMQ:
    return RabbitMQ(directory / "rabbitmq", address=host.address, prefix=host.prefix)


def _valkey(directory: Path, host: Host, *, is_persistent: bool = True) -> EmbeddedValkey:
    return EmbeddedValkey(directory, is_persistent=is_persistent, address=host.address, prefix=host.prefix)


@dataclass(kw_only=True)
class Hosts:
    """The hosts by name, and the services of each."""

    by_name: dict[str, Host]
    servers: HostServers
    bucket: Bucket
    stack: Stack
    supervised: dict[str, list[SupervisedProcess]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Return the address of the service for clients."""
        return f"http://{self.by_name['edge'].address}:{EDGE_PORT}"

    def keep(self, host: str, kind: str, make: Callable[[], Service]) -> None:
        """Start a process on a host, and keep it running there."""
        at = self.by_name[host]
        place = partial(_placed, make, at)
        supervised = SupervisedProcess(kind=kind, make=place, points=(), service=place())
        supervised.service.start()
        self.supervised.setdefault(host, []).append(supervised)

    def start(self) -> None:
        """Start every process of the service, and nginx before the web processes."""
        stack = self.stack
        for host in ("front-1", "front-2"):
            self.keep(host, "web", partial(stack.web, port=FRONT_PORT))
        for host in ("work-1", "work-2"):
            for name in WORKERS:
                self.keep(host, f"{name} worker", partial(stack.worker, name))
            self.keep(host, "beat", stack.beat)
        self.keep("edge", "nginx", self._nginx)
        for supervised in (
            *self.supervised["front-1"],
            *self.supervised["front-2"],
            *self.supervised["edge"],
        ):
            supervised.service.wait_until_answering()

    def start_servers_of(self, host: str) -> None:
        """Restart the servers of a host, which are not processes of the service."""
        if host == "postgres":
            self.servers.postgres.start()
        for valkey in self.servers.valkeys:
            if valkey.name == host:
                valkey.start()
        if self.servers.rabbitmq is not None and self.servers.rabbitmq.name == host:
            self.servers.rabbitmq.start()

    def _nginx(self) -> Service:
        directory = self.stack.directory / "nginx"
        directory.mkdir(exist_ok=True)
        fronts = [f"{self.by_name[name].address}:{FRONT_PORT}" for name in ("front-1", "front-2")]
        edge = self.by_name["edge"]
        edge.tune(keepalive_time=10, keepalive_intvl=5, keepalive_probes=3)
        command = nginx_command(
            directory, listen=f"{edge.address}:{EDGE_PORT}", services=fronts, error_level="error"
        )
        service = self.stack._service("nginx", command, {}, port=EDGE_PORT)
        # If the kernel killed it with this run, its children would survive: it must end them itself.
        service._program = replace(service._program, death_signal=signal.SIGTERM)
        return service


def _placed(make: Callable[[], Service], host: Host) -> Service:
    return make().place(host.address, host.prefix)


NAMES = ("edge", "front-1", "front-2", "work-1", "work-2", "postgres", "valkey", "valkey-models", "store")


def build(directory: Path, closing: ExitStack, *, over_rabbitmq: bool = False) -> Hosts:
    """Build the hosts, start the servers, and describe the installation; no process of the service runs yet."""
    names = (*NAMES, RabbitMQ.name) if over_rabbitmq else NAMES
    by_name = {name: Host(name, number) for number, name in enumerate(names, start=10)}
    servers = HostServers(directory / "servers", by_name)
    closing.callback(servers.stop)
    servers.start()
    bucket = Bucket(by_name["store"], directory / "s3")
    closing.callback(bucket.stop)
    bucket.start()
    settings = SETTINGS | bucket.settings | {"TRUSTED_PROXIES": by_name["edge"].address}
    stack = Stack(
        directory / "stack",
        servers,
        blob_store=f"s3://{BUCKET}/files",
        settings=settings | {"BASE_URL": f"http://{by_name['edge'].address}"},
    )
    name = stack.database_url.partition("@/")[2].partition("?")[0]
    address = f"{by_name['postgres'].address}:{DATABASE_PORT}"
    stack.environment["DATABASE_URL"] = f"postgresql://quartermaster_app@{address}/{name}"
    closing.callback(stack.kill_all)
    return Hosts(by_name=by_name, servers=servers, bucket=bucket, stack=stack)
