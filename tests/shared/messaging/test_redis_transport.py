"""The product's corrections of kombu's Redis transport work, and the code that they correct has not changed."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from kombu import Connection
from kombu.transport import TRANSPORT_ALIASES, redis
from redis.exceptions import ConnectionError as RedisConnectionError

import shared.messaging.redis_transport
from deploy.embedded.valkey import EmbeddedValkey
from shared.messaging.publisher import create_celery


@pytest.fixture
def connection(valkey_server: EmbeddedValkey) -> Iterator[Connection]:
    """A connection as the service's application makes it."""
    app = create_celery(valkey_server.url)
    with app.connection_for_write() as connection:
        yield connection
    app.close()


def test_redis_addresses_use_the_corrected_transport(connection: Connection) -> None:
    assert (
        TRANSPORT_ALIASES["redis"]
        == TRANSPORT_ALIASES["rediss"]
        == "shared.messaging.redis_transport:Transport"
    )
    assert isinstance(connection.transport, shared.messaging.redis_transport.Transport)
    assert isinstance(connection.default_channel, shared.messaging.redis_transport.Channel)


def test_a_channel_whose_transport_was_closed_reports_a_lost_connection(connection: Connection) -> None:
    channel: Any = connection.default_channel
    client, channel.connection.client = channel.connection.client, None
    try:
        with pytest.raises(RedisConnectionError):
            channel._connparams()
        assert issubclass(RedisConnectionError, connection.connection_errors)
    finally:
        channel.connection.client = client


def test_a_channel_keeps_one_client_for_its_pool(connection: Connection) -> None:
    channel: Any = connection.default_channel
    with channel.conn_or_acquire() as first, channel.conn_or_acquire() as second:
        assert first is second
    channel._kept = (object(), object())
    with channel.conn_or_acquire() as third:
        assert third is not first


def test_kombu_still_is_what_the_corrections_rely_on() -> None:
    """If this fails after an upgrade of kombu: compare `shared/messaging/redis_transport.py` with the new code."""
    channel: Any = redis.Channel
    assert list(inspect.signature(channel._connparams).parameters) == ["self", "asynchronous"]
    assert list(inspect.signature(channel.conn_or_acquire).parameters) == ["self", "client"]
    closing = inspect.getsource(channel._connparams)
    assert "conninfo = self.connection.client" in closing
    assert "is None" not in closing.partition("conninfo = self.connection.client")[2].partition("\n")[0]
    acquiring = inspect.getsource(channel.conn_or_acquire)
    assert "yield self._create_client()" in acquiring
    assert "self.pool" in inspect.getsource(channel._create_client) + inspect.getsource(channel._get_client)
    assert hasattr(channel, "pool")
