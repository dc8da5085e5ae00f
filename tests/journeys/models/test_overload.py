"""More calls than can be served: excess calls are refused without a charge, and queued ones after a timeout."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import redis

from shared.models.concurrency_limits import SlotAnnouncer, read_slots
from shared.models.queue.call_queue import CallQueue
from tests.journeys.models.asking import ask, scripted
from tests.support.data.inventory import query
from tests.support.models.call_messages import KEYS
from tests.support.models.model_service import ModelService
from tests.support.processes.stack import free_port, wait_until


def held(service: ModelService) -> int:
    return int(query(service.stack, "SELECT coalesce(sum(held), 0) FROM credit_balances")[0][0])


@contextmanager
def busy_worker(valkey: redis.Redis) -> Iterator[None]:
    """Announce a worker that takes no call: if none is known, one caller may not fill the queue."""
    announcement = SlotAnnouncer(valkey, slots=64)
    announcement.start()
    try:
        wait_until(lambda: read_slots(valkey), "the worker is known")
        yield
    finally:
        announcement.stop()


def test_excess_calls_are_refused_and_queued_calls_time_out(
    service: ModelService, valkey: redis.Redis
) -> None:
    valkey.delete(*KEYS)
    before = len(service.invocations())
    front = service.stack.web(port=free_port(), QUEUED_MODEL_CALLS="2")
    with service.stack.running(front), busy_worker(valkey), ThreadPoolExecutor(2) as pool:
        queued = [pool.submit(ask, service, scripted(), front=front) for _ in range(2)]
        wait_until(lambda: CallQueue(valkey).count() == 2, "two calls wait")
        reserved = held(service)
        refused = ask(service, scripted(), front=front)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
        assert int(refused.headers["Retry-After"]) >= 1
        assert (held(service), len(service.invocations())) == (reserved, before + 2)
        answers = [at.result() for at in queued]
    assert [at.status_code for at in answers] == [503, 503]
    assert all(int(at.headers["Retry-After"]) >= 1 for at in answers)
    assert held(service) == 0
    assert list(service.invocations().values())[-2:] == ["voided", "voided"]
