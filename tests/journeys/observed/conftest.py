"""An installation as containers run it: every process has an operations port and its own metrics."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from deploy.embedded.ports import find_free_port
from deploy.process_types import WORKERS
from tests.journeys.test_remote_agents import MODELS, House, Network
from tests.support.processes.agent_processes import DEVELOPMENT, running_agent
from tests.support.processes.stack import Servers, Service, Stack
from tests.support.servers.trace_collector import Collector


@dataclass(frozen=True, kw_only=True)
class Observed:
    """The installation, with a remote agent, and the address of each process's operations port."""

    house: House
    stack: Stack
    targets: dict[str, str]
    collector: Collector


@pytest.fixture(scope="package")
def observed(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    """Run one process of each kind."""
    directory = tmp_path_factory.mktemp("observed")
    models = directory / "models.toml"
    models.write_text(MODELS)
    collector = Collector()
    traces = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "200"}
    stack = Stack(directory, servers, settings={**DEVELOPMENT, **traces, "MODELS_CONFIG": str(models)})
    credentials = stack.set_up()
    ports = {name: str(find_free_port()) for name in ("web", *WORKERS, "beat")}
    front = stack.web(OPERATIONS_PORT=ports["web"])
    others: list[Service] = [stack.worker(name, OPERATIONS_PORT=ports[name]) for name in WORKERS]
    others.append(stack.beat(OPERATIONS_PORT=ports["beat"]))
    try:
        with (
            collector,
            stack.running(front, *others),
            Network(credentials["distribution"]["webhookSecret"]) as network,
            running_agent(front.url, credentials) as address,
        ):
            house = House(url=front.url, credentials=credentials, network=network)
            house.register(address)
            targets = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
            yield Observed(house=house, stack=stack, targets=targets, collector=collector)
    finally:
        stack.kill_all()
