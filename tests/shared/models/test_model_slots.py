"""A model's concurrency limit: kept over all processes, and shared among organizations."""

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from deploy.embedded.valkey import EmbeddedValkey
from shared.models import model_slots
from shared.models.model_slots import ModelSlots
from tests.support.processes.stack import wait_until

A, B, C = (UUID(int=at) for at in (1, 2, 3))
_models = count()


class Model:
    """A model with this many slots, as two processes see it: a call takes its slot at either."""

    def __init__(self, valkey: Redis, limit: int) -> None:
        self.valkey = valkey
        self.id = f"limited/{next(_models)}"
        self.limit = limit
        self.processes = [ModelSlots(valkey), ModelSlots(valkey)]
        self.calls: dict[UUID, list[UUID]] = {A: [], B: [], C: []}

    def takes(self, organization_id: UUID) -> bool:
        """Return whether a call of an organization gets a slot."""
        call_id = uuid4()
        process = self.processes[organization_id.int % 2]
        refused = process.try_to_take(call_id, organization_id, model=self.id, limit=self.limit)
        assert refused in (None, len(self.calls[organization_id]))
        if refused is None:
            self.calls[organization_id].append(call_id)
        return refused is None

    def ends(self, organization_id: UUID) -> None:
        """A call of an organization ends, and its slot is free."""
        process, call_id = self.processes[organization_id.int % 2], self.calls[organization_id].pop()
        assert process.stop_renewing(call_id)
        process.release(call_id)

    def leases(self) -> dict[str, float]:
        """The leases, and when they run out."""
        found: Any = self.valkey.zrange(f"model:slots:{self.id}", 0, -1, withscores=True)
        return {name.decode(): end for name, end in found}

    def close(self) -> None:
        for process in self.processes:
            process.close()


@pytest.fixture
def valkey(valkey_server: EmbeddedValkey) -> Iterator[Redis]:
    with Redis.from_url(valkey_server.url) as client:
        yield client


@pytest.fixture
def two(valkey: Redis) -> Iterator[Model]:
    with closing(Model(valkey, 2)) as model:
        yield model


@pytest.fixture
def one(valkey: Redis) -> Iterator[Model]:
    with closing(Model(valkey, 1)) as model:
        yield model


def test_slots_are_shared_between_processes_and_released(two: Model) -> None:
    assert (two.takes(A), two.takes(B), two.takes(A), two.takes(B)) == (True, True, False, False)
    two.ends(A)
    assert (two.takes(A), two.takes(A)) == (True, False)
    two.ends(A)
    two.ends(B)
    assert two.leases() == {}


def test_released_slot_goes_to_another_at_once(two: Model) -> None:
    """One organization begins its next call as one ends, and never rests."""
    assert (two.takes(A), two.takes(A), two.takes(B)) == (True, True, False)
    two.ends(A)
    assert (two.takes(A), two.takes(B)) == (False, True)
    two.ends(B)
    assert (two.takes(B), two.takes(A)) == (True, False)


def test_the_only_slot_goes_round(one: Model) -> None:
    assert (one.takes(A), one.takes(B), one.takes(C)) == (True, False, False)
    for ending, beginning, waiting in ((A, B, C), (B, C, A), (C, A, B)):
        one.ends(ending)
        assert [one.takes(at) for at in (ending, waiting, beginning)] == [False, False, True]


def test_free_slots_beyond_those_that_are_waited_for_are_anyones(valkey: Redis) -> None:
    with closing(Model(valkey, 4)) as model:
        assert [model.takes(at) for at in (A, A, A, A, B)] == [True, True, True, True, False]
        model.ends(A)
        model.ends(A)
        assert (model.takes(C), model.takes(C), model.takes(B)) == (True, False, True)


def test_one_alone_leaves_an_eighth(valkey: Redis) -> None:
    with closing(Model(valkey, 16)) as model:
        assert [model.takes(A) for _ in range(15)] == [True] * 14 + [False]
        assert (model.takes(B), model.takes(B)) == (True, True)


def test_one_that_does_not_ask_again_is_waited_for_no_longer(
    two: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_slots, "WANTED_SECONDS", 0.02)
    assert (two.takes(A), two.takes(A), two.takes(B)) == (True, True, False)
    two.ends(A)
    wait_until(lambda: two.takes(A), "it is forgotten")


def test_a_slot_is_taken_over_by_the_process_that_makes_the_call(one: Model) -> None:
    front, worker = one.processes[A.int % 2], ModelSlots(one.valkey)
    assert one.takes(A)
    (call_id,) = one.calls[A]
    with worker.taken_over(call_id, A, model=one.id, limit=1):
        assert (len(one.leases()), one.takes(B)) == (1, False)
        front.release(call_id)  # its client has gone, and the upstream works on
        assert (len(one.leases()), one.takes(B)) == (1, False)
    assert one.takes(B)
    worker.close()


def test_a_call_takes_one_slot_however_often_it_asks(one: Model) -> None:
    slots = one.processes[0]
    assert [slots.try_to_take(A, A, model=one.id, limit=1) for _ in range(2)] == [None, None]
    assert len(one.leases()) == 1


def test_a_dead_process_loses_its_slots(one: Model) -> None:
    dead = ModelSlots(one.valkey, lease_seconds=0.1)
    dead.close()  # its thread died with it
    assert dead.try_to_take(uuid4(), A, model=one.id, limit=1) is None
    assert not one.takes(B)
    wait_until(lambda: one.takes(B), "its slot comes free")


def test_a_long_call_keeps_its_slot(valkey: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_slots, "RENEW_EVERY_SECONDS", 0.01)
    with closing(Model(valkey, 2)) as model:
        assert (model.takes(A), model.takes(B)) == (True, True)
        with model.processes[0].taken_over(model.calls[A][0], A, model=model.id, limit=2):
            taken_until = max(model.leases().values())
            wait_until(lambda: min(model.leases().values()) > taken_until, "both end later than they would")
            assert len(model.leases()) == 2


@pytest.fixture
def away() -> Iterator[ModelSlots]:
    with closing(ModelSlots(Redis(port=1, retry=Retry(NoBackoff(), 0)))) as slots:
        yield slots


def test_model_without_a_limit_does_no_io(away: ModelSlots, caplog: pytest.LogCaptureFixture) -> None:
    with away.taken_over(uuid4(), A, model="m", limit=None):
        assert not away.stop_renewing(uuid4())
    assert caplog.messages == []


def test_calls_go_on_when_valkey_is_away(away: ModelSlots) -> None:
    call_id = uuid4()
    assert away.try_to_take(call_id, A, model="m", limit=1) is None
    with away.taken_over(call_id, A, model="m", limit=1):
        pass
