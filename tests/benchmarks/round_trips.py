"""Rows about jobs: from a web process to a worker and back, for an empty job, compared with plain Celery.

The product uses a model call's message, Celery with its own strategy, and the web process's reply channel. The
yardstick is a task of Celery with threads over the same Valkey, and its result. Each client waits for the end of a job
before it sends the next.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

from deploy.embedded.valkey import EmbeddedValkey
from shared.ids import new_id
from shared.messaging.replies import ReplyChannel, ReplyKind
from shared.messaging.valkey import connect_valkey
from tests.benchmarks.models.queue import running_worker, send_call
from tests.benchmarks.models.queue_workers import NOTHING, make_bare
from tests.benchmarks.runner.measurements import percentile
from tests.benchmarks.runner.product import Bench
from tests.benchmarks.runner.report import Line, milliseconds
from tests.benchmarks.uploads import placement_latency
from tests.support.processes.stack import wait_until

WARM_UP = 50
PATIENCE_SECONDS = 60.0
MOST_SECONDS = 0.003


def queue(bench: Bench) -> Iterator[Line]:
    """Measure the queue itself, and what an upload waits for behind it."""
    yield _round_trips(bench)
    yield from placement_latency(bench)


def _round_trips(bench: Bench) -> Line:
    count = bench.scaled(1000, 200)
    taken: dict[str, list[float]] = {"ours": [], "Celery": []}
    with ExitStack() as stack:
        ask = {"ours": _ours(bench, stack), "Celery": _bare(bench, stack)}
        for each in ask.values():
            _seconds(each, WARM_UP)
        for _ in range(bench.scaled(3, 2)):
            for name, each in ask.items():
                taken[name] += _seconds(each, count)
    ours, bare = ((percentile(seconds, 50), percentile(seconds, 99)) for seconds in taken.values())
    return Line(
        what="front to worker to front, a job without content, one client",
        figure=f"p50 {milliseconds(ours[0])}, p99 {milliseconds(ours[1])}",
        yardstick=f"bare Celery p50 {milliseconds(bare[0])}, p99 {milliseconds(bare[1])}",
        ratio=ours[0] / bare[0],
        target=f"p50 ≤ {MOST_SECONDS * 1000:g} ms",
        met=ours[0] <= MOST_SECONDS,
    )


def _ours(bench: Bench, stack: ExitStack) -> Callable[[], None]:
    url = _valkey(bench, stack, "ours")
    valkey = stack.enter_context(connect_valkey(url))
    stack.callback(lambda: wait_until(lambda: not valkey.pubsub_channels(), "the channel of replies is left"))
    channel = stack.enter_context(closing(ReplyChannel(valkey)))
    stack.enter_context(running_worker("replies", url))

    def ask() -> None:
        with channel.open(new_id()) as inbox:
            send_call(valkey, inbox.address)
            reply = inbox.receive(PATIENCE_SECONDS)
        assert reply is not None
        assert reply.kind is ReplyKind.END

    return ask


def _bare(bench: Bench, stack: ExitStack) -> Callable[[], None]:
    url = _valkey(bench, stack, "bare")
    app = stack.enter_context(make_bare(url))
    stack.enter_context(running_worker("bare", url))
    return lambda: app.send_task(NOTHING).get(timeout=PATIENCE_SECONDS)


def _valkey(bench: Bench, stack: ExitStack, name: str) -> str:
    server = EmbeddedValkey(bench.directory / f"jobs-{name}")
    server.start()
    stack.callback(server.stop)
    return server.url


def _seconds(ask: Callable[[], None], count: int) -> list[float]:
    taken = []
    for _ in range(count):
        started_at = time.perf_counter()
        ask()
        taken.append(time.perf_counter() - started_at)
    return taken
