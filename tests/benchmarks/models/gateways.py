"""The gateways of the benchmark: none, the product, and LiteLLM, all in front of the same upstreams.

The product runs as `make up` runs it: two web processes, the worker of models, the background worker and beat, over
durable Postgres. CPU is that of all processes behind a gateway's address except the upstreams.
"""

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from deploy.process_types import ALLOCATOR
from deploy.supervision.child_processes import Program
from tests.benchmarks.clients import request_head
from tests.benchmarks.models.litellm import KEY, litellm
from tests.benchmarks.peers.servers import is_usable
from tests.benchmarks.runner.measurements import CpuMeter
from tests.benchmarks.runner.product import DEFAULTS, Bench, server_pid
from tests.support.processes.stack import ROOT, Service, Stack, free_port, wait_until

PLAIN, LONG, PACED, SLOW, TIMED = "fake/plain", "fake/long", "fake/paced", "fake/slow", "fake/timed"
PACE_SECONDS = 0.04
PACED_CHUNKS = 50
TIMED_MILLISECONDS, TIMED_CHUNKS = 20, 100
"""A reply of a hundred tokens over two seconds, as real models send it."""

_MODEL = """
[[models]]
id = "{name}"
prompt_price = "1"
completion_price = "2"
upstreams = [{{ provider = "{provider}", model = "{model}" }}]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """One way to the upstreams."""

    name: str
    ports: Mapping[str, int]
    key: str
    pids: Mapping[str, Sequence[int]]
    renamed: Mapping[str, str]

    def request(self, model: str, *, is_stream: bool = False) -> tuple[int, bytes]:
        """Return the port and the request of a call."""
        document = {
            "model": self.renamed.get(model, model),
            "messages": [
                {"role": "system", "content": "You answer briefly and to the point."},
                {
                    "role": "user",
                    "content": "Which of the planets has the most moons, and since when is it known?",
                },
            ],
            "max_tokens": 2000,
        }
        body = json.dumps(document | ({"stream": True} if is_stream else {})).encode()
        head = request_head(
            "POST",
            "/v1/chat/completions",
            length=len(body),
            Content_Type="application/json",
            Authorization=f"Bearer {self.key}",
        )
        return self.ports[model], head + body

    def meter(self) -> CpuMeter:
        """Measure the CPU of its processes, by part."""
        return CpuMeter(self.pids)

    def largest_process_bytes(self, part: str) -> int:
        """Return the resident memory of the largest process of a part."""
        trees = (psutil.Process(pid) for pid in self.pids[part])
        return max(
            each.memory_info().rss for tree in trees for each in (tree, *tree.children(recursive=True))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateways:
    """All gateways that could be started. `stack` is the product's."""

    direct: Gateway
    ours: Gateway
    litellm: Gateway | None
    stack: Stack
    organization_id: str

    @property
    def all(self) -> Sequence[Gateway]:
        return [self.direct, self.ours, *([self.litellm] if self.litellm else [])]


@contextlib.contextmanager
def gateways(bench: Bench, row: str) -> Iterator[Gateways]:
    """Run the upstreams and all gateways within the block, in the row's directory."""
    directory = bench.directory / row
    directory.mkdir()
    with contextlib.ExitStack() as closing:
        upstreams = _upstreams(bench, closing, directory)
        proxy = _litellm(bench, closing, directory, upstreams)
        stack = Stack(
            directory / "quartermaster",
            bench.servers,
            settings=ALLOCATOR | DEFAULTS,
        )
        catalog = directory / "models.toml"
        catalog.write_text(_catalog(upstreams))
        stack.environment["MODELS_CONFIG"] = str(catalog)
        credentials = stack.set_up()
        web, worker = stack.web(), stack.worker("models")
        others = (stack.worker("background"), stack.worker("ledger"), stack.beat())
        closing.enter_context(stack.running(web, worker, *others))
        if proxy is not None and not is_usable(proxy):
            proxy = None
        ours: dict[str, Sequence[int]] = {
            "web": [web.pid],
            "worker": [worker.pid],
            "postgres": [server_pid(bench.servers.postgres)],
            "valkey": [server_pid(valkey) for valkey in bench.servers.valkeys],
            "background": [other.pid for other in others],
        }
        yield Gateways(
            direct=Gateway(
                name="direct",
                ports={name: port for name, (port, _) in upstreams.items()},
                key="none",
                pids={},
                renamed={name: model for name, (_, model) in upstreams.items()},
            ),
            ours=_gateway("ours", web, credentials["ownerApiKey"], ours),
            litellm=_gateway("LiteLLM", proxy, KEY, {"proxy": [proxy.pid]}) if proxy else None,
            stack=stack,
            organization_id=str(credentials["organizationId"]),
        )


def _gateway(name: str, service: Service, key: str, pids: Mapping[str, Sequence[int]]) -> Gateway:
    assert service.port is not None
    ports = dict.fromkeys((PLAIN, LONG, PACED, SLOW, TIMED), service.port)
    return Gateway(name=name, ports=ports, key=key, pids=pids, renamed={})


def _upstreams(bench: Bench, closing: contextlib.ExitStack, directory: Path) -> dict[str, tuple[int, str]]:
    """Start the upstreams. Yield the port and model behind each of the product's model names."""
    plain, long, paced = free_port(), free_port(), free_port()
    chunks = long_chunks(bench)
    fake = "tests.support.models.upstreams"
    for name, module, arguments in (
        ("plain", fake, ("--port", str(plain))),
        ("long", fake, ("--port", str(long), "--script", json.dumps({"chunks": chunks}))),
        ("paced", "tests.benchmarks.models.upstream", (str(paced),)),
    ):
        program = Program(
            name=f"upstream-{name}",
            # A pipe without a writer keeps it running.
            command=(
                "/bin/sh",
                "-c",
                'sleep infinity | exec "$@"',
                "sh",
                sys.executable,
                "-m",
                module,
                *arguments,
            ),
            directory=ROOT,
            log=directory / f"upstream-{name}.log",
        )
        service = Service(program)
        service.start()
        closing.callback(service.kill)
    for port in (plain, long, paced):
        wait_until(lambda port=port: _accepts(port), "the upstreams listen")  # type: ignore[misc]
    pace = round(PACE_SECONDS * 1000)
    return {
        PLAIN: (plain, "upstream-model"),
        LONG: (long, "upstream-model"),
        PACED: (paced, f"paced-{pace}-{PACED_CHUNKS}"),
        SLOW: (paced, f"paced-500-{bench.scaled(20, 6)}"),
        TIMED: (paced, f"paced-{TIMED_MILLISECONDS}-{TIMED_CHUNKS}"),
    }


def long_chunks(bench: Bench) -> int:
    """Return the chunks of the long reply, which are all sent at once."""
    return bench.scaled(500, 200)


def _litellm(
    bench: Bench,
    closing: contextlib.ExitStack,
    directory: Path,
    upstreams: Mapping[str, tuple[int, str]],
) -> Service | None:
    models = {name: (f"http://127.0.0.1:{port}/v1", model) for name, (port, model) in upstreams.items()}
    proxy = litellm(bench.peers, directory / "litellm", free_port(), models, may_install=not bench.quick)
    if proxy is not None:
        proxy.start()
        closing.callback(proxy.kill)
    return proxy


def _catalog(upstreams: Mapping[str, tuple[int, str]]) -> str:
    ports = sorted({port for port, _ in upstreams.values()})
    providers = [f'[providers.p{port}]\nbase_url = "http://127.0.0.1:{port}/v1"\n' for port in ports]
    models = [
        _MODEL.format(name=name, provider=f"p{port}", model=model)
        for name, (port, model) in upstreams.items()
    ]
    return "\n".join([*providers, *models])


def _accepts(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
