"""The installation of the noisy-neighbor trials: its pools are small enough to be exhausted from one machine."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from tests.chaos.installation import set_up
from tests.chaos.neighbours.endpoints import PostedUpdates, SilentEndpoint
from tests.chaos.neighbours.tenants import give_agent, make_tenant
from tests.chaos.neighbours.trials import Scene
from tests.chaos.observations import Observations
from tests.chaos.supervised_process import READY
from tests.support.data.media_sources import MediaSource
from tests.support.models.catalog_text import FAKE, model_text
from tests.support.models.upstreams import FakeUpstream
from tests.support.processes.stack import Servers, Service, Stack, free_port, wait_until

UNFAIR = "admission.unfair"
FRONTS = 2
SETTINGS = {
    "ACCESS_TOKEN_SECONDS": "86400",
    "LOG_LEVEL": "WARNING",
    "WEB_PROCESSES": "1",
    "MODELS_THREADS": "32",
    "AGENTS_THREADS": "16",
    "MEDIA_THREADS": "8",
    "CONCURRENT_UPLOADS": "8",
    "CONCURRENT_DELIVERIES": "16",
    "STREAMS_PER_PROCESS": "32",
    "EGRESS_ALLOW_PRIVATE": "true",
    "EGRESS_ALLOW_HTTP": "true",
}
SIZES: Mapping[str, int] = {
    "strangers": 64,
    "bodies": 32,
    "uploads": FRONTS * 8,
    "downloads": FRONTS * 16,
    "calls": 32,
    "held streams": 200,
    "task streams": FRONTS * 32,
    "turns": 16,
    "fetches": 8,
    "deliveries": 16,
}
CATALOG = (
    '[providers.fake]\nbase_url = "ADDRESS"\n[providers.slow]\nbase_url = "ADDRESS"\n'
    + model_text("fake/chat", FAKE, retries=0)
    + model_text("slow/chat", FAKE.replace("fake", "slow"), retries=0)
)
WORKERS = ("files", "models", "media", "agents", "background", "ledger")


@contextmanager
def open_stage(
    directory: Path, servers: Servers, *, is_fair: bool, max_wait_seconds: float
) -> Iterator[Scene]:
    """Run a whole installation with two tenants within the block."""
    with ExitStack() as closing:
        upstream = closing.enter_context(FakeUpstream())
        stack = Stack(directory, servers, settings=SETTINGS if is_fair else SETTINGS | {"FAULTS": UNFAIR})
        closing.callback(stack.kill_all)
        catalog = directory / "models.toml"
        catalog.write_text(CATALOG.replace("ADDRESS", upstream.base_url))
        stack.environment["MODELS_CONFIG"] = str(catalog)
        fronts = _fronts(stack)
        ports = [front.port for front in fronts if front.port is not None]
        installation = set_up(stack, [front.url for front in fronts], Observations(), seed=0)
        closing.callback(installation.database.dispose)
        _start(stack, fronts)
        make = partial(make_tenant, installation, fronts[0].url, max_wait_seconds=max_wait_seconds)
        scene = Scene(
            hostile=make("Hostile"),
            victim=make("Victim"),
            ports=ports,
            source=closing.enter_context(MediaSource()),
            silent=closing.enter_context(SilentEndpoint()),
            posted=closing.enter_context(PostedUpdates()),
            sizes=SIZES,
            max_wait_seconds=max_wait_seconds,
        )
        give_agent(scene.hostile)
        give_agent(scene.victim)
        yield scene


def _fronts(stack: Stack) -> list[Service]:
    return [stack.web(), *(stack.web(port=free_port()) for _ in range(FRONTS - 1))]


def _start(stack: Stack, fronts: list[Service]) -> None:
    workers = [stack.worker(name, LOG_LEVEL="INFO") for name in WORKERS]
    for service in (*fronts, *workers, stack.beat()):
        service.start()
    for front in fronts:
        front.wait_until_answering()
    for worker in workers:
        wait_until(partial(worker.has_logged, READY), f"{worker.name} is ready; see {worker.log}")
