"""Workers that do nothing with jobs, for `queue` and `round_trips`.

`python -m tests.benchmarks.models.queue_workers (messages|lists|replies|bare) REDIS_URL`. Of messages and entries of
lists each takes its thread as long as a quick upstream does; of the other two, ours and bare Celery's, each is answered
at once.
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
    """Carries calls out by waiting, and counts them."""

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
    """Carries calls out by telling the front at once that they have ended."""

    def __init__(self, redis_url: str) -> None:
        super().__init__(redis_url)
        self.publisher = ReplyPublisher(self.valkey)

    def run(self, call: object) -> bool:
        assert isinstance(call, QueuedCall)
        return ReplyWriter(self.publisher, call.address).send(ReplyKind.END)


def read_messages(redis_url: str) -> None:
    """Be a Celery worker with our strategy."""
    _serve(redis_url, Idle(redis_url))


def reply_to_messages(redis_url: str) -> None:
    """Be a Celery worker with our strategy that answers."""
    _serve(redis_url, Echo(redis_url))


def be_bare(redis_url: str) -> None:
    """Be a worker of Celery as it comes, with threads, whose one task does nothing."""
    app = make_bare(redis_url)
    app.task(name=NOTHING)(do_nothing)
    app.Worker(pool="threads", concurrency=THREADS).start()


def do_nothing() -> None:
    """Be the task of bare Celery."""


def make_bare(redis_url: str) -> Celery:
    """Configure Celery as it comes, with results."""
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
    """Take entries of lists, each by the thread that does it: the least that a queue in Valkey costs."""
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
    """Put request and entry, as a front did that used lists."""
    ask_together(
        valkey,
        ("SET", f"bench:request:{invocation_id.hex}", REQUEST, "EX", 60),
        ("RPUSH", LISTS[number % len(LISTS)], invocation_id.bytes * 4),
    )


if __name__ == "__main__":
    kinds = {"messages": read_messages, "lists": read_lists, "replies": reply_to_messages, "bare": be_bare}
    kinds[sys.argv[1]](sys.argv[2])
