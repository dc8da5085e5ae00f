"""Scheduling of calls in a worker: fair among queues and providers, and no thread waits for room."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import redis

from deploy.embedded.valkey import EmbeddedValkey
from shared.ids import new_id
from shared.messaging.broker import Broker
from shared.messaging.publisher import create_celery
from shared.messaging.queues import MODELS
from shared.messaging.redis_transport import QueueRoundRobin
from shared.messaging.replies import ReplyAddress
from shared.models.catalog import Upstream
from shared.models.catalog_file import CatalogFile
from shared.models.dialects import Dialect
from shared.models.execution import AdmittedCall, CallScheduler
from shared.models.queue.call_queue import (
    AcceptedRequest,
    CallQueue,
    QueuedCall,
    parked_queue,
    queue_of,
    read_message,
)
from tests.support.models.call_messages import count_aside, take_call

SLOTS = 8
ENTRY = CatalogFile(None).current().entries[0]


@pytest.fixture
def queue(valkey: redis.Redis) -> CallQueue:
    return CallQueue(valkey)


def put(queue: CallQueue, provider: str, organization_id: UUID | None = None) -> UUID:
    upstream = replace(ENTRY.upstreams[0], provider=replace(ENTRY.upstreams[0].provider, name=provider))
    assert isinstance(upstream, Upstream)
    request = AcceptedRequest(
        entry=replace(ENTRY, upstreams=(upstream,)), dialect=Dialect.CHAT, is_stream=True, created=0, body={}
    )
    address = ReplyAddress(invocation_id=new_id(), channel="quartermaster:replies:x")
    queue.put(address, request, organization_id=organization_id or new_id())
    return address.invocation_id


def call_of(provider: str) -> QueuedCall:
    address = ReplyAddress(invocation_id=new_id(), channel="quartermaster:replies:x")
    return QueuedCall(address=address, provider=provider, queue=queue_of(provider, new_id()))


def admit_all(calls: CallScheduler, provider: str, number: int) -> list[AdmittedCall]:
    admitted = [calls.admit(call_of(provider)) for _ in range(number)]
    return [at for at in admitted if at is not None]


def read(broker_url: str, queues: list[str], number: int) -> list[QueuedCall]:
    """Read so many messages as a worker's consumer does."""
    found: list[QueuedCall] = []

    def note(message: Any) -> None:
        found.append(read_message(message.headers, message.body, message.delivery_info))

    app = create_celery(broker_url)
    with app.connection_for_read() as connection:
        consumer = app.amqp.TaskConsumer(
            connection.default_channel, [Broker.of(broker_url).queue(name) for name in queues]
        )
        consumer.on_message = note
        with consumer:
            while len(found) < number:
                connection.drain_events(timeout=60)
    return found


def test_a_call_arrives_as_it_was_put(queue: CallQueue, valkey_server: EmbeddedValkey) -> None:
    invocation_id = put(queue, "maker/one", UUID(int=1))
    (taken,) = read(valkey_server.url, list(MODELS), 1)
    assert (taken.address.invocation_id, taken.address.channel) == (invocation_id, "quartermaster:replies:x")
    assert (taken.provider, taken.queue) == ("maker/one", queue_of("maker/one", UUID(int=1)))


def test_a_long_queue_does_not_stand_before_another(queue: CallQueue, valkey_server: EmbeddedValkey) -> None:
    greedy, others = new_id(), [new_id() for _ in range(40)]
    flood = {put(queue, "p", greedy) for _ in range(200)}
    for organization_id in others:
        put(queue, "p", organization_id)
    first = read(valkey_server.url, list(MODELS), 3 * len(MODELS))
    taken = {call.address.invocation_id for call in first}
    assert len(taken - flood) > len(MODELS), "most queues have been read by then"


def test_a_queue_gives_its_calls_in_the_order_in_which_they_came(
    queue: CallQueue, valkey_server: EmbeddedValkey
) -> None:
    sent = [put(queue, "p", UUID(int=1)) for _ in range(5)]
    assert [call.address.invocation_id for call in read(valkey_server.url, list(MODELS), 5)] == sent


def test_parked_call_of_a_dead_worker_is_read_by_another(
    queue: CallQueue, valkey_server: EmbeddedValkey
) -> None:
    dead = CallScheduler(queue, slots=1)
    assert len(admit_all(dead, "slow", 3)) == 1
    assert len(read(valkey_server.url, [*MODELS, parked_queue("slow")], 2)) == 2


def test_queues_are_read_round_robin_and_parked_calls_first(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = QueueRoundRobin()
    turn.update(["a", "b", parked_queue("full"), parked_queue("free")])
    assert turn.consume(4) == [parked_queue("full"), parked_queue("free"), "a", "b"]
    turn.rotate("a")
    monkeypatch.setattr(QueueRoundRobin, "closed", lambda: {parked_queue("full")})
    assert turn.consume(4) == [parked_queue("free"), "b", "a"]


def test_provider_leaves_slots_for_others_and_parks_its_calls(queue: CallQueue, valkey: redis.Redis) -> None:
    calls = CallScheduler(queue, slots=SLOTS)
    assert len(admit_all(calls, "slow", 20)) == SLOTS * 7 // 8
    assert count_aside(valkey, "slow") == 20 - SLOTS * 7 // 8
    assert queue.count() == 0, "the rest is put aside, and stands before nobody"
    assert calls.closed_queues() == {parked_queue("slow")}
    assert len(admit_all(calls, "quick", 1)) == 1


def test_ending_thread_takes_a_parked_call(queue: CallQueue) -> None:
    calls = CallScheduler(queue, slots=SLOTS)
    waiting = [call_of("slow") for _ in range(9)]
    running = [at for at in map(calls.admit, waiting) if at is not None]
    assert len(running) == SLOTS * 7 // 8
    done = [at.call for at in running]
    for at in running:
        at.slot.release()
        following = calls.take_following("slow")
        if following is not None:
            done.append(following.call)
            following.slot.release()
    assert done == waiting
    assert calls.take_following("slow") is None
    assert not calls.closed_queues()


def test_queued_call_is_not_sent_again_and_a_lost_call_is_next(queue: CallQueue, valkey: redis.Redis) -> None:
    put(queue, "p", UUID(int=1))
    put(queue, "p", UUID(int=1))
    waiting = take_call(valkey)
    assert waiting is not None
    assert queue.requeue_if_lost(waiting), "it was taken"
    assert not queue.requeue_if_lost(waiting), "it waits"
    assert (queue.count(), take_call(valkey)) == (2, waiting)


def test_parked_call_is_not_lost(queue: CallQueue) -> None:
    call = call_of("p")
    queue.park(call)
    assert not queue.requeue_if_lost(call)
    assert queue.take_parked("p") == call
    assert queue.requeue_if_lost(call)
