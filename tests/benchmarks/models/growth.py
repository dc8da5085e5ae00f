"""The row about the growth of calls: the same calls with little and with much configuration and history.

Two installations differ only in size (models and keys, organizations, settled calls) and are measured in turn. One
caller makes calls in sequence with ten of the keys and models. The last line uses another key and model for every
call, so that caches of callers do not help.
"""

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from deploy.process_types import ALLOCATOR
from shared.identity.secrets import Secret
from tests.benchmarks.clients import Connection, request_head
from tests.benchmarks.runner.measurements import Contender, CpuMeter, Sample, interleave
from tests.benchmarks.runner.product import DEFAULTS, Bench, server_pid
from tests.benchmarks.runner.report import Line, cpu_per, flat, milliseconds
from tests.benchmarks.usage_inventory import add_key_holders, record_usage
from tests.support.models.upstreams import FakeUpstream
from tests.support.processes.stack import Stack, wait_until

USED = 10
_PROVIDER = '[providers.fake]\nbase_url = "{address}"\n'
_MODEL = """
[[models]]
id = "fake/{number}"
prompt_price = "1"
completion_price = "2"
upstreams = [{{ provider = "fake", model = "upstream-model" }}]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The number of rows of each kind."""

    models: int
    keys: int
    organizations: int
    calls: int
    charged: int
    """The number of calls that have an invocation and entries, besides the usage record."""

    def __str__(self) -> str:
        return (
            f"{self.models} models, {self.keys} keys, {self.organizations} organizations, {self.calls} calls"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A running installation, and requests to it."""

    port: int
    meter: CpuMeter
    usual: Sequence[bytes]
    various: Sequence[bytes]

    def call(self, requests: Sequence[bytes], count: int) -> Sample:
        """Make this many calls in sequence."""

        def run() -> None:
            connection = Connection(self.port)
            for number in range(count):
                connection.ask(requests[number % len(requests)], expect=200)
            connection.close()

        return self.meter.run(run)


def calls_growth(bench: Bench) -> Iterator[Line]:
    """Call the small and the large installation in turn."""
    count = bench.scaled(400, 100)
    small = Size(models=10, keys=10, organizations=1, calls=100, charged=100)
    large = Size(
        models=10_000,
        keys=10_000,
        organizations=1000,
        calls=bench.scaled(10_000_000, 50_000),
        charged=bench.scaled(1_000_000, 40_000),
    )
    with ExitStack() as closing:
        upstream = closing.enter_context(FakeUpstream())
        few = _installation(bench, closing, upstream, "calls_few", small, count)
        many = _installation(bench, closing, upstream, "calls_many", large, count)
        contenders: dict[str, Contender] = {
            "few": lambda: few.call(few.usual, count),
            "many": lambda: many.call(many.usual, count),
            "various": lambda: many.call(many.various, count),
        }
        for contender in contenders.values():
            contender()
        taken = interleave(bench.scaled(7, 3), contenders)
    yardstick = f"{small}: {milliseconds(taken['few'].seconds / count)}, {_cpu(taken['few'], count)} CPU"
    yield flat(
        f"a call among {large}",
        f"{milliseconds(taken['many'].seconds / count)}, {_cpu(taken['many'], count)} CPU",
        yardstick,
        ratio=taken["many"].cpu_seconds / taken["few"].cpu_seconds,
        cpu=cpu_per(taken["many"], count, "call"),
    )
    yield Line(
        what="the same, every call by another key to another model",
        figure=f"{milliseconds(taken['various'].seconds / count)}, {_cpu(taken['various'], count)} CPU",
        yardstick="the same",
        ratio=taken["various"].cpu_seconds / taken["few"].cpu_seconds,
        cpu=cpu_per(taken["various"], count, "call"),
    )


def _cpu(sample: Sample, count: int) -> str:
    return f"{sample.cpu_seconds * 1000 / count:.2f} ms"


def _installation(
    bench: Bench, closing: ExitStack, upstream: FakeUpstream, name: str, size: Size, count: int
) -> Installation:
    stack = Stack(
        bench.directory / name,
        bench.servers,
        settings=ALLOCATOR | DEFAULTS | {"WEB_PROCESSES": "1"},
    )
    catalog = stack.directory / "models.toml"
    models = [_MODEL.format(number=number) for number in range(size.models)]
    catalog.write_text(_PROVIDER.format(address=upstream.base_url) + "".join(models))
    stack.environment["MODELS_CONFIG"] = str(catalog)
    stack.set_up()
    keys = _fill(stack.administrator_url, size)
    web, worker = stack.web(), stack.worker("models")
    closing.enter_context(stack.running(web, worker))
    wait_until(lambda: worker.has_logged(" ready."), "the worker is ready", seconds=60)
    chance = random.Random(name)
    made = [
        _request(key.value, chance.randrange(size.models))
        for key in chance.sample(keys, min(count, size.keys))
    ]
    meter = CpuMeter(
        {
            "web": [web.pid],
            "worker": [worker.pid],
            "postgres": [server_pid(bench.servers.postgres)],
            "valkey": [server_pid(valkey) for valkey in bench.servers.valkeys],
        }
    )
    assert web.port is not None
    return Installation(port=web.port, meter=meter, usual=made[:USED], various=made)


def _fill(url: str, size: Size) -> Sequence[Secret]:
    payers, people, keys = add_key_holders(url, size.keys, organizations=size.organizations)
    for calls, with_money in ((size.charged, True), (size.calls - size.charged, False)):
        record_usage(
            url, calls, organizations=payers, users=people[:1000], models=size.models, with_money=with_money
        )
    return keys


def _request(key: str, model: int) -> bytes:
    document = {
        "model": f"fake/{model}",
        "messages": [{"role": "user", "content": "Which of the planets has the most moons?"}],
        "max_completion_tokens": 100,
    }
    body = json.dumps(document).encode()
    head = request_head(
        "POST",
        "/v1/chat/completions",
        length=len(body),
        Content_Type="application/json",
        Authorization=f"Bearer {key}",
    )
    return head + body
