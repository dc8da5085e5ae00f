"""Which call a worker takes next: no list and no provider stands before the others, and no thread waits for one."""

from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import pytest
import redis

from deploy.embedded.valkey import EmbeddedValkey
from shared.ids import new_id
from shared.models import execution
from shared.models.call_queue import ASIDE, KEYS, LISTS, AcceptedRequest, CallQueue
from shared.models.catalog import Upstream
from shared.models.catalog_file import CatalogFile
from shared.models.dialects import Dialect
from shared.models.execution import AdmittedCall, FairCalls
from shared.replies import ReplyAddress
from shared.valkey import connect_valkey

SLOTS = 8
ENTRY = CatalogFile(None).current().entries[0]


@pytest.fixture
def valkey(valkey_server: EmbeddedValkey) -> Iterator[redis.Redis]:
    with connect_valkey(valkey_server.url) as valkey:
        yield valkey
        valkey.delete(*KEYS, *valkey.scan_iter(f"{ASIDE}*"), *valkey.scan_iter("quartermaster:request:*"))


@pytest.fixture
def queue(valkey: redis.Redis) -> CallQueue:
    return CallQueue(valkey)


def worker(queue: CallQueue, slots: int = SLOTS) -> FairCalls:
    return FairCalls(queue, slots=slots, patience_seconds=0.05)


def put(queue: CallQueue, provider: str, organization_id: UUID | None = None) -> UUID:
    upstream = replace(ENTRY.upstreams[0], provider=replace(ENTRY.upstreams[0].provider, name=provider))
    assert isinstance(upstream, Upstream)
    request = AcceptedRequest(
        entry=replace(ENTRY, upstreams=(upstream,)), dialect=Dialect.CHAT, is_stream=True, created=0, body={}
    )
    address = ReplyAddress(invocation_id=new_id(), channel="quartermaster:replies:x")
    queue.put(address, request, organization_id=organization_id or new_id())
    return address.invocation_id


def take_all(calls: FairCalls, rounds: int) -> list[AdmittedCall]:
    return [taken for taken in (calls.take() for _ in range(rounds)) if taken is not None]


def test_a_call_arrives_as_it_was_put(queue: CallQueue) -> None:
    invocation_id = put(queue, "maker/one")
    taken = queue.take(patience_seconds=1)
    assert taken is not None
    assert (taken.address.invocation_id, taken.address.channel) == (invocation_id, "quartermaster:replies:x")
    assert taken.provider == "maker/one"


def test_a_long_list_does_not_stand_before_another(queue: CallQueue) -> None:
    greedy, others = new_id(), [new_id() for _ in range(40)]
    flood = {put(queue, "p", greedy) for _ in range(200)}
    for organization_id in others:
        put(queue, "p", organization_id)
    first = [queue.take(patience_seconds=1) for _ in range(3 * LISTS)]
    taken = {call.address.invocation_id for call in first if call is not None}
    assert len(taken - flood) > LISTS, "most lists have been read by then"


def test_a_provider_leaves_slots_for_others_and_its_calls_wait_without_a_thread(queue: CallQueue) -> None:
    calls = worker(queue)
    for _ in range(20):
        put(queue, "slow")
    slow = take_all(calls, 20)
    assert len(slow) == SLOTS * 7 // 8
    assert queue.count() == 0, "the rest is put aside, and stands before nobody"
    quick = put(queue, "quick")
    (taken,) = take_all(calls, 2)
    assert taken.call.address.invocation_id == quick


def test_the_thread_that_ends_a_call_takes_one_that_was_put_aside(
    queue: CallQueue, valkey: redis.Redis
) -> None:
    calls = worker(queue)
    waiting = [put(queue, "slow", organization_id=UUID(int=1)) for _ in range(9)]
    running = take_all(calls, 9)
    assert calls.take_following("slow") is None, "there is no room yet"
    done = [at.call.address.invocation_id for at in running]
    for at in running:
        at.slot.release()
        following = calls.take_following("slow")
        if following is not None:
            done.append(following.call.address.invocation_id)
            following.slot.release()
    assert sorted(done) == sorted(waiting)
    assert calls.take_following("slow") is None
    assert not valkey.exists(ASIDE)


def test_what_a_dead_worker_put_aside_is_taken_by_another(
    queue: CallQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "LOOK_SECONDS", 0.0)
    dead = worker(queue, slots=1)
    for _ in range(3):
        put(queue, "slow")
    assert len(take_all(dead, 3)) == 1
    assert len(take_all(worker(queue), 3)) == 2
