"""The cost of a model call's way through the queue: the product's Celery messages, compared with a bare list.

Calls are sent at a steady rate from sixteen threads. CPU is that of the sender, the worker and Valkey, the two in
turn.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import redis

from deploy.embedded.valkey import EmbeddedValkey
from shared.ids import new_id
from shared.messaging.replies import ReplyAddress
from shared.messaging.valkey import ask_together, connect_valkey
from shared.models.queue.call_queue import QueuedCall, key_of, queue_of, write_message
from tests.benchmarks.models.queue_workers import DONE, REQUEST, put_in_list
from tests.benchmarks.runner.measurements import CpuMeter, Sample, interleave
from tests.benchmarks.runner.product import Bench
from tests.benchmarks.runner.report import Line, cpu_per
from tests.support.processes.stack import wait_until

RATE = 300
SENDERS = 16
MOST_MILLISECONDS = 0.5
WARM_UP = 100


def model_queue(bench: Bench) -> Iterator[Line]:
    """Send and receive this many calls, each way."""
    count = bench.scaled(6_000, 900)
    server = EmbeddedValkey(bench.directory / "queue-valkey")
    server.start()
    try:
        with connect_valkey(server.url) as valkey:
            contenders = {
                "messages": lambda: _sample(server, "messages", count, lambda _: _send(valkey)),
                "lists": lambda: _sample(
                    server, "lists", count, lambda number: put_in_list(valkey, number, new_id())
                ),
            }
            median = interleave(bench.scaled(5, 3), contenders)
    finally:
        server.stop()
    messages, lists = (median[name].cpu_seconds / count * 1000 for name in ("messages", "lists"))
    yield Line(
        what="a call's message, less an entry of a list",
        figure=f"{messages - lists:.3f} ms",
        yardstick=f"{messages:.3f} less {lists:.3f} ms",
        target=f"≤ {MOST_MILLISECONDS} ms",
        met=messages - lists <= MOST_MILLISECONDS,
        cpu=f"{cpu_per(median['messages'], count, 'message')}; {cpu_per(median['lists'], count, 'entry')}",
    )


def send_call(valkey: redis.Redis, address: ReplyAddress) -> None:
    """Send a call's message with its request, as a web process does."""
    call = QueuedCall(address=address, provider="provider", queue=queue_of("provider", new_id()))
    ask_together(
        valkey,
        ("SET", f"bench:request:{address.invocation_id.hex}", REQUEST, "EX", 60),
        ("LPUSH", key_of(call.queue), write_message(call)),
    )


def _send(valkey: redis.Redis) -> None:
    send_call(valkey, ReplyAddress(invocation_id=new_id(), channel="quartermaster:replies:" + "0" * 32))


def _sample(server: EmbeddedValkey, kind: str, count: int, send: Callable[[int], None]) -> Sample:
    with connect_valkey(server.url) as valkey, running_worker(kind, server.url) as pid:
        _send_steadily(valkey, WARM_UP, send)
        meter = CpuMeter(
            {"worker": [pid], "valkey": [int((server.directory / "valkey.pid").read_text())]}, own="sender"
        )
        return meter.run(lambda: _send_steadily(valkey, count, send))


def _send_steadily(valkey: redis.Redis, count: int, send: Callable[[int], None]) -> None:
    valkey.delete(DONE)
    began_at = time.monotonic()

    def send_some(first: int) -> None:
        for number in range(first, count, SENDERS):
            time.sleep(max(0.0, began_at + number / RATE - time.monotonic()))
            send(number)

    with ThreadPoolExecutor(SENDERS) as pool:
        list(pool.map(send_some, range(SENDERS)))
    wait_until(lambda: int(valkey.get(DONE) or 0) >= count, "all calls are taken")


@contextmanager
def running_worker(kind: str, redis_url: str) -> Iterator[int]:
    """Run a worker of `queue_workers` within the block. Yield its process id."""
    command = [sys.executable, "-m", "tests.benchmarks.models.queue_workers", kind, redis_url]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()
