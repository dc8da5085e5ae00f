"""Messages that a strike takes from a broker and puts back: they keep their bytes and their queue."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from random import Random
from typing import Any

import pytest
import redis

from deploy.embedded.valkey import EmbeddedValkey
from shared.messaging.broker import KEY_PREFIX, Broker
from shared.messaging.publisher import create_celery, send_kind
from shared.messaging.queues import MODELS, MODELS_ASIDE, RETENTION, UPLOADS
from tests.chaos.strikes import interceptors
from tests.chaos.strikes.base import Chance
from tests.chaos.strikes.interceptors import (
    BrokerUnavailable,
    Interceptor,
    RabbitMQInterceptor,
    ValkeyInterceptor,
)
from tests.chaos.strikes.message_strikes import MessageStrikes
from tests.support.processes.stack import wait_until
from tests.support.servers.rabbitmq import RabbitMQ

NOWHERE = "127.0.0.1:9/0"


def over_valkey(request: pytest.FixtureRequest) -> tuple[str, Interceptor]:
    server: EmbeddedValkey = request.getfixturevalue("valkey_server")
    url = server.url.rpartition("/")[0] + "/63"
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return url, ValkeyInterceptor(url, Random(1))


def over_rabbitmq(request: pytest.FixtureRequest) -> tuple[str, Interceptor]:
    node: RabbitMQ = request.getfixturevalue("rabbitmq")
    url = node.new_installation_url()
    return url, RabbitMQInterceptor(url, Random(1))


@pytest.fixture(params=[over_valkey, over_rabbitmq])
def opened(request: pytest.FixtureRequest) -> Iterator[tuple[str, Interceptor]]:
    url, interceptor = request.param(request)
    with closing(interceptor):
        yield url, interceptor


def test_message_put_several_times_returns_unchanged_each_time(opened: tuple[str, Interceptor]) -> None:
    url, interceptor = opened
    send(url, UPLOADS)
    taken = interceptor.take()
    assert taken is not None
    assert interceptor.take() is None
    interceptor.put(taken)
    interceptor.put(taken)
    again = [interceptor.take(), interceptor.take(), interceptor.take()]
    assert [each and (each.queue, body_of(each.content)) for each in again] == [
        *[(taken.queue, body_of(taken.content))] * 2,
        None,
    ]


def test_held_messages_return_to_their_own_queues_when_strikes_end(opened: tuple[str, Interceptor]) -> None:
    url, interceptor = opened
    for queue in (UPLOADS, RETENTION, MODELS[0]):
        send(url, queue)
    chance = Chance(1)
    strikes = MessageStrikes([interceptor], chance)
    while chance.done.total() < 3:
        strikes.strike()
    strikes.mend()
    with closing(Broker.of(url)) as broker:
        assert all(broker.depth(queue) for queue in (UPLOADS, RETENTION, MODELS[0]))
    assert {kind.partition(" ")[0] for kind in chance.done} == {"message"}


def test_deferred_model_calls_can_be_taken(valkey_server: EmbeddedValkey) -> None:
    url = valkey_server.url.rpartition("/")[0] + "/62"
    key = f"{KEY_PREFIX}{MODELS_ASIDE}somebody"
    with redis.Redis.from_url(url) as client:
        client.flushdb()
        client.lpush(key, "call")
    with closing(ValkeyInterceptor(url, Random(1), is_for_calls=True)) as interceptor:
        taken = interceptor.take()
    assert taken is not None
    assert (taken.queue, taken.content) == (key, b"call")


def test_tap_takes_a_message_before_idle_workers(
    valkey_server: EmbeddedValkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle worker waits already; the tap still receives the next message, and the worker the one after it."""
    monkeypatch.setattr(interceptors, "TAKE_SECONDS", 20.0)
    monkeypatch.setattr(interceptors, "SOCKET_SECONDS", 30.0)
    url = valkey_server.url.rpartition("/")[0] + "/61"
    key = KEY_PREFIX + MODELS[0]
    given: list[Any] = []
    sent_away = threading.Event()
    with (
        redis.Redis.from_url(url) as client,
        closing(ValkeyInterceptor(url, Random(1), is_for_calls=True)) as interceptor,
    ):
        client.flushdb()

        def work() -> None:
            while len(given) < 2:
                if found := client.brpop([key], timeout=20):
                    given.append(found)
                else:
                    sent_away.set()

        def put_two_once_all_wait() -> None:
            assert sent_away.wait(20)
            wait_until(lambda: waiting_names(client) == ["", "tap"], "the tap waits behind nobody")
            client.lpush(key, "first", "second")

        with ThreadPoolExecutor(2) as pool:
            working = pool.submit(work)
            wait_until(lambda: waiting_names(client) == [""], "a worker waits")
            putting = pool.submit(put_two_once_all_wait)
            taken = interceptor.take()
            putting.result()
            client.lpush(key, "third")
            working.result()
    assert taken is not None
    assert taken.content == b"first"
    assert [content for _, content in given] == [b"second", b"third"]


@pytest.mark.parametrize(
    "interceptor",
    [ValkeyInterceptor(f"redis://{NOWHERE}", Random(1)), RabbitMQInterceptor(f"amqp://{NOWHERE}", Random(1))],
)
def test_unavailable_broker_raises_broker_away(interceptor: Interceptor) -> None:
    with closing(interceptor), pytest.raises(BrokerUnavailable):
        interceptor.take()


def waiting_names(client: redis.Redis) -> list[str]:
    clients: Any = client.client_list()
    return sorted(each["name"] for each in clients if (each["cmd"], each["db"]) == ("brpop", "61"))


def send(url: str, queue: str) -> None:
    with closing(create_celery(url)) as app:
        send_kind(app, "files.expire_due", queue=queue)


def body_of(content: object) -> object:
    return getattr(content, "body", content)
