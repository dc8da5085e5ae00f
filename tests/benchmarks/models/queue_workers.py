"""Workers that do nothing with jobs, for `queue` and `round_trips`.

`python -m tests.benchmarks.models.queue_workers (messages|lists|replies|bare) REDIS_URL`. With `messages` and `lists`,
each job occupies its thread as long as a quick upstream would. With `replies` and `bare`, the product's and plain
Celery's, each job is replied to at once.
"""

import sys
import time
from typing import Any
from uuid import UUID

import redis
from celery import Celery

from shared.fairness.admission import Pool, PoolKey, Slot
from shared.messaging.publisher import create_celery
from shared.messaging.queues import MODELS
from shared.messaging.redis_transport import QueueRoundRobin
from shared.messaging.replies import ReplyKind, ReplyWriter
from shared.messaging.reply_publisher import ReplyPublisher
from shared.messaging.valkey import ask_together, connect_valkey
from shared.models.concurrency_limits import PROVIDER_ALPHA
from shared.models.execution import CallScheduler
from shared.models.queue.call_queue import TASK, CallQueue, QueuedCall
from workers.call_strategy import CallStrategy
from workers.consumers import ConsumerPool

THREADS = 16
CALL_SECONDS = 0.005
DONE = "bench:done"
REQUEST = "x" * 1500
NOTHING = "bench.nothing"
LISTS = tuple(f"bench:list:{number}" for number in range(len(MODELS)))
PATIENCE_SECONDS = 2.0


class Idle:
    """An executor that waits instead of calling, and counts the calls."""

    def __init__(self, redis_url: str) -> None:
        self.valkey = connect_valkey(redis_url)
        self.scheduler = CallScheduler(CallQueue(self.valkey), slots=THREADS)

    def run(self, call: object) -> bool:  # noqa: ARG002 (all calls are alike)
        time.sleep(CALL_SECONDS)
        self.valkey.incr(DONE)
        return True

    def providers(self) -> list[str]:
        return []

    def refuse(self, call: QueuedCall) -> None:
        raise NotImplementedError

    def cancel(self, call: QueuedCall) -> None:
        raise NotImplementedError


class Echo(Idle):
    """An executor that reports the end of each call to the web process at once."""

    def __init__(self, redis_url: str) -> None:
        super().__init__(redis_url)
        self.publisher = ReplyPublisher(self.valkey)

    def run(self, call: object) -> bool:
        assert isinstance(call, QueuedCall)
        return ReplyWriter(self.publisher, call.address).send(ReplyKind.END)


def read_messages(redis_url: str) -> None:
    """Run a Celery worker with the product's strategy."""
    _serve(redis_url, Idle(redis_url))


def reply_to_messages(redis_url: str) -> None:
    """Run a Celery worker with the product's strategy that replies."""
    _serve(redis_url, Echo(redis_url))


def be_bare(redis_url: str) -> None:
    """Run a plain Celery worker with threads, whose only task does nothing."""
    app = make_bare(redis_url)
    app.task(name=NOTHING)(do_nothing)
    app.Worker(pool="threads", concurrency=THREADS).start()


def do_nothing() -> None:
    """The task of plain Celery."""


def make_bare(redis_url: str) -> Celery:
    """Return a plain Celery app with a result backend."""
    return Celery("bare", broker=redis_url, backend=redis_url, set_as_current=False)


def _serve(redis_url: str, idle: Idle) -> None:
    app = create_celery(redis_url)
    task: Any = app.task(name=TASK, ignore_result=True)(idle.run)
    task.Strategy = lambda of, _, consumer: CallStrategy(idle, of, consumer)
    app.conf.worker_disable_prefetch = True
    QueueRoundRobin.closed = idle.scheduler.closed_queues
    app.Worker(
        pool="threads",
        concurrency=THREADS,
        queues=MODELS,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    ).start()


def read_lists(redis_url: str) -> None:
    """Take entries of lists, each by the thread that runs it: the minimum cost of a queue in Valkey."""
    idle = Idle(redis_url)
    pool = Pool("model_worker", THREADS, alpha=PROVIDER_ALPHA)

    def take() -> Slot | None:
        pool.tenants_at_limit()
        taken: Any = idle.valkey.blpop(LISTS, timeout=PATIENCE_SECONDS)
        return pool.acquire(PoolKey("provider", None)) if taken is not None else None

    def run(slot: Slot) -> None:
        with slot:
            idle.run(slot)

    ConsumerPool(take, run, limit=THREADS, name="list").start()
    while True:
        time.sleep(60)


def put_in_list(valkey: redis.Redis, number: int, invocation_id: UUID) -> None:
    """Store request and entry as a web process would with lists."""
    ask_together(
        valkey,
        ("SET", f"bench:request:{invocation_id.hex}", REQUEST, "EX", 60),
        ("RPUSH", LISTS[number % len(LISTS)], invocation_id.bytes * 4),
    )


if __name__ == "__main__":
    kinds = {"messages": read_messages, "lists": read_lists, "replies": reply_to_messages, "bare": be_bare}
    kinds[sys.argv[1]](sys.argv[2])
