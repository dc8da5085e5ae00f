"""The limit on calls at once, over all workers."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from deploy.embedded.valkey import EmbeddedValkey
from shared.models.providers import concurrency
from shared.models.providers.concurrency import ModelSlots
from shared.models.providers.errors import ProviderOverloaded
from tests.shared.models.providers.calls import model
from tests.support.stack import wait_until

LIMITED = replace(model("http://127.0.0.1:1/v1"), concurrency_limit=2)


@pytest.fixture
def valkey(valkey_server: EmbeddedValkey) -> Iterator[Redis]:
    client = Redis.from_url(valkey_server.url)
    client.delete(f"model:running:{LIMITED.id}")
    yield client
    client.close()


@pytest.fixture
def slots(valkey: Redis) -> Iterator[ModelSlots]:
    made = ModelSlots(valkey)
    yield made
    made.close()


def test_slots_are_shared_between_workers_and_given_back(slots: ModelSlots, valkey: Redis) -> None:
    another = ModelSlots(valkey)
    with slots.slot(LIMITED), another.slot(LIMITED):
        with pytest.raises(ProviderOverloaded) as raised, slots.slot(LIMITED):
            pytest.fail("a third call must not run")
        assert raised.value.retry_after_seconds
        assert not raised.value.may_have_cost
    with slots.slot(LIMITED):
        pass
    another.close()
    assert valkey.zcard(f"model:running:{LIMITED.id}") == 0


def test_a_slot_is_given_back_when_the_call_fails(slots: ModelSlots, valkey: Redis) -> None:
    with pytest.raises(ZeroDivisionError), slots.slot(LIMITED):
        raise ZeroDivisionError
    assert valkey.zcard(f"model:running:{LIMITED.id}") == 0


def test_a_dead_workers_slots_come_free(slots: ModelSlots, valkey: Redis) -> None:
    dead = ModelSlots(valkey, lease_seconds=0.3)
    dead.close()  # its thread died with it
    with ExitStack() as never_left:
        never_left.enter_context(dead.slot(LIMITED))
        never_left.enter_context(dead.slot(LIMITED))
        with ExitStack() as taken:
            for _ in range(1000):
                try:
                    taken.enter_context(slots.slot(LIMITED))
                    break
                except ProviderOverloaded:
                    time.sleep(0.01)
            else:
                pytest.fail("the dead worker's slots never came free")


def test_a_long_call_keeps_its_slot(valkey: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "RENEW_EVERY_SECONDS", 0.01)
    slots = ModelSlots(valkey)
    with closing(slots), slots.slot(LIMITED), slots.slot(LIMITED):
        taken_until = max(ends(valkey))
        wait_until(lambda: min(ends(valkey)) > taken_until, "both leases end later than they would have")
        with pytest.raises(ProviderOverloaded), slots.slot(LIMITED):
            pytest.fail("a third call must not run")


def ends(valkey: Redis) -> list[float]:
    """When the leases run out."""
    leases: Any = valkey.zrange(f"model:running:{LIMITED.id}", 0, -1, withscores=True)
    return [end for _, end in leases]


def test_a_model_without_a_limit_asks_nobody() -> None:
    away = ModelSlots(Redis(port=1, retry=Retry(NoBackoff(), 0)))
    with away.slot(replace(LIMITED, concurrency_limit=None)):
        pass
    away.close()


def test_calls_go_on_when_valkey_is_away() -> None:
    away = ModelSlots(Redis(port=1, retry=Retry(NoBackoff(), 0)))
    with away.slot(LIMITED):
        pass
    away.close()
