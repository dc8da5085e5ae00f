"""What takes messages out of a broker, and puts them back: each as it was, as often as it is put."""

from collections.abc import Iterator
from contextlib import closing
from random import Random

import pytest
import redis

from deploy.embedded.valkey import EmbeddedValkey
from shared.broker import KEY_PREFIX, Broker
from shared.publisher import create_celery, send_kind
from shared.queues import MODELS, MODELS_ASIDE, RETENTION, UPLOADS
from tests.chaos.message_strikes import MessageStrikes
from tests.chaos.strikes import Chance
from tests.chaos.taps import BrokerAway, RabbitTap, Tap, ValkeyTap
from tests.support.rabbitmq import RabbitMQ

NOWHERE = "127.0.0.1:9/0"


def over_valkey(request: pytest.FixtureRequest) -> tuple[str, Tap]:
    server: EmbeddedValkey = request.getfixturevalue("valkey_server")
    url = server.url.rpartition("/")[0] + "/63"
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return url, ValkeyTap(url, Random(1))


def over_rabbitmq(request: pytest.FixtureRequest) -> tuple[str, Tap]:
    node: RabbitMQ = request.getfixturevalue("rabbitmq")
    url = node.new_installation_url()
    return url, RabbitTap(url, Random(1))


@pytest.fixture(params=[over_valkey, over_rabbitmq])
def opened(request: pytest.FixtureRequest) -> Iterator[tuple[str, Tap]]:
    url, tap = request.param(request)
    with closing(tap):
        yield url, tap


def test_a_message_comes_back_as_it_was_and_as_often_as_it_is_put(opened: tuple[str, Tap]) -> None:
    url, tap = opened
    send(url, UPLOADS)
    taken = tap.take()
    assert taken is not None
    assert tap.take() is None
    tap.put(taken)
    tap.put(taken)
    again = [tap.take(), tap.take(), tap.take()]
    assert [each and (each.queue, body_of(each.content)) for each in again] == [
        *[(taken.queue, body_of(taken.content))] * 2,
        None,
    ]


def test_each_message_is_in_its_own_queue_again_once_all_is_mended(opened: tuple[str, Tap]) -> None:
    url, tap = opened
    for queue in (UPLOADS, RETENTION, MODELS[0]):
        send(url, queue)
    chance = Chance(1)
    strikes = MessageStrikes([tap], chance)
    while chance.done.total() < 3:
        strikes.strike()
    strikes.mend()
    with closing(Broker.of(url)) as broker:
        assert all(broker.depth(queue) for queue in (UPLOADS, RETENTION, MODELS[0]))
    assert {kind.partition(" ")[0] for kind in chance.done} == {"message"}


def test_calls_that_were_put_aside_are_reached(valkey_server: EmbeddedValkey) -> None:
    url = valkey_server.url.rpartition("/")[0] + "/62"
    key = f"{KEY_PREFIX}{MODELS_ASIDE}somebody"
    with redis.Redis.from_url(url) as client:
        client.flushdb()
        client.lpush(key, "call")
    with closing(ValkeyTap(url, Random(1), is_for_calls=True)) as tap:
        taken = tap.take()
    assert taken is not None
    assert (taken.queue, taken.content) == (key, b"call")


@pytest.mark.parametrize(
    "tap", [ValkeyTap(f"redis://{NOWHERE}", Random(1)), RabbitTap(f"amqp://{NOWHERE}", Random(1))]
)
def test_a_broker_that_is_away_is_told(tap: Tap) -> None:
    with closing(tap), pytest.raises(BrokerAway):
        tap.take()


def send(url: str, queue: str) -> None:
    with closing(create_celery(url)) as app:
        send_kind(app, "files.expire_due", queue=queue)


def body_of(content: object) -> object:
    return getattr(content, "body", content)
