"""Abandoned calls are cancelled from a background thread, so that no response waits for Valkey."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from urllib.parse import urlsplit
from uuid import UUID

import pytest
import redis

from deploy.embedded.valkey import EmbeddedValkey
from shared.ids import new_id
from shared.messaging.valkey import connect_valkey
from shared.models import cancellations
from shared.models.cancellations import Cancellations
from shared.models.queue.call_queue import CallQueue, find_cancelled
from shared.models.reply_timeouts import replies
from tests.shared.models.model_calls import ModelCalls
from tests.support.processes.stack import wait_until
from tests.support.servers.links import Link


@pytest.fixture(autouse=True)
def _trying(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancellations, "RETRY_SECONDS", 0.05)


@pytest.fixture
def way(valkey_server: EmbeddedValkey) -> Iterator[Link]:
    """A way to Valkey; connections are made at once, and nothing answers before it is entered."""
    address = urlsplit(valkey_server.url)
    assert address.hostname is not None
    assert address.port is not None
    with ExitStack() as stack:
        link = Link((address.hostname, address.port))
        stack.push(link)
        yield link


@pytest.fixture
def queue(way: Link, valkey_server: EmbeddedValkey) -> Iterator[CallQueue]:
    """The queue of calls over that way."""
    address = urlsplit(valkey_server.url)
    url = address._replace(netloc=f":{address.password}@127.0.0.1:{way.port}").geturl()
    with connect_valkey(url, timeout_seconds=0.2) as valkey:
        yield CallQueue(valkey)


def are_cancelled(valkey: redis.Redis, *invocation_ids: UUID) -> Callable[[], bool]:
    return lambda: find_cancelled(valkey, invocation_ids) == set(invocation_ids)


def test_wait_ends_without_valkey_and_its_call_is_cancelled_later(
    calls: ModelCalls, queue: CallQueue, way: Link
) -> None:
    inbox = calls.chat("!tokens 9\n!stall after 2")
    cancelling = Cancellations(queue)
    with calls.executing(inbox):
        coming = replies(replace(calls.invoker, queue=queue, cancellations=cancelling), inbox)
        assert next(coming) is not None
        coming.close()
        assert not are_cancelled(calls.valkey, inbox.address.invocation_id)()
        with way:
            wait_until(are_cancelled(calls.valkey, inbox.address.invocation_id), "the call is cancelled")
            cancelling.close()
    assert calls.charge(inbox)[0] == "cancelled"
    assert calls.charge(inbox)[2] < 9


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of cancellations in each request to Valkey."""
    trips: list[int] = []
    withdraw = CallQueue.withdraw

    def counted(queue: CallQueue, *invocation_ids: UUID) -> None:
        trips.append(len(invocation_ids))
        withdraw(queue, *invocation_ids)

    monkeypatch.setattr(CallQueue, "withdraw", counted)
    return trips


def test_many_calls_are_cancelled_together(
    valkey: redis.Redis, trips: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellations, "BATCH_SECONDS", 3600.0)
    cancelling = Cancellations(CallQueue(valkey))
    left = [new_id() for _ in range(40)]
    cancelling.add(left[0])
    wait_until(are_cancelled(valkey, left[0]), "the first is cancelled at once")
    for invocation_id in left[1:]:
        cancelling.add(invocation_id)
    cancelling.close()
    assert are_cancelled(valkey, *left)()
    assert sum(trips) == len(left)
    assert len(trips) <= 3


def test_a_process_keeps_so_many_cancellations_and_rather_the_newer(
    valkey: redis.Redis, queue: CallQueue, way: Link, trips: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellations, "MAX_PENDING", 2)
    cancelling = Cancellations(queue)
    left = [new_id() for _ in range(3)]
    for invocation_id in left:
        cancelling.add(invocation_id)
    wait_until(lambda: len(trips) > 1, "Valkey was silent for too long once")
    with way:
        cancelling.close()
        assert find_cancelled(valkey, left) == set(left[1:])


def test_a_process_ends_though_valkey_takes_no_cancellations(queue: CallQueue) -> None:
    cancelling = Cancellations(queue)
    cancelling.add(new_id())
    cancelling.close()
