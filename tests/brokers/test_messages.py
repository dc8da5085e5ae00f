"""Messages that web processes publish themselves: after a broker outage, old connections fail no call."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from kombu.exceptions import OperationalError

import shared.messaging.broker
from shared.errors import ServiceUnavailable
from shared.messaging.broker import Broker
from shared.messaging.direct_messages import CONNECTIONS, BrokerMessages
from shared.messaging.queues import MODELS
from tests.support.processes.stack import wait_until
from tests.support.servers.rabbitmq import RabbitMQ


def kill(rabbitmq: RabbitMQ, messages: BrokerMessages) -> None:
    rabbitmq.kill()
    assert not sends(messages)
    rabbitmq.start_again()


def alarm(rabbitmq: RabbitMQ, messages: BrokerMessages) -> None:
    with rabbitmq.in_alarm():
        assert not sends(messages)


def sends(messages: BrokerMessages) -> bool:
    try:
        messages.send(MODELS[0], "{}", {})
    except ServiceUnavailable:
        return False
    return True


@pytest.fixture
def messages(rabbitmq: RabbitMQ) -> Iterator[BrokerMessages]:
    with closing(Broker.of(rabbitmq.new_url())) as broker:
        yield BrokerMessages(broker)


def test_full_queue_does_not_block_other_queues(
    messages: BrokerMessages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared.messaging.broker, "CALLS_LIMIT", 2)
    with pytest.raises(ServiceUnavailable, match="refuses"):
        _send_often(messages)
    messages.send(MODELS[1], "{}", {})


def test_failing_connection_does_not_block_concurrent_publishers(
    messages: BrokerMessages,
) -> None:
    with contextlib.suppress(ServiceUnavailable), messages._producer():
        messages.send(MODELS[0], "{}", {})
        raise OperationalError("this connection alone")
    messages.send(MODELS[0], "{}", {})


def test_unavailable_broker_is_not_contacted_again_for_a_moment(messages: BrokerMessages) -> None:
    with pytest.raises(ServiceUnavailable), messages._producer():
        raise OperationalError("away")
    with pytest.raises(ServiceUnavailable):
        messages.send(MODELS[0], "{}", {})


def _send_often(messages: BrokerMessages) -> None:
    for _ in range(10):
        messages.send(MODELS[0], "{}", {})


@pytest.mark.parametrize("befall", [kill, alarm])
def test_one_accepted_message_makes_all_publishers_use_the_broker_again(
    rabbitmq: RabbitMQ, befall: Callable[[RabbitMQ, BrokerMessages], None]
) -> None:
    with (
        closing(Broker.of(rabbitmq.new_installation_url())) as broker,
        ThreadPoolExecutor(CONNECTIONS) as pool,
    ):
        messages = BrokerMessages(broker)
        for _ in range(3):  # Use every connection once.
            assert all(pool.map(sends, [messages] * CONNECTIONS))
        befall(rabbitmq, messages)
        wait_until(lambda: sends(messages), "a message is taken again")
        taken = list(pool.map(sends, [messages] * CONNECTIONS))
        assert taken == [True] * CONNECTIONS
