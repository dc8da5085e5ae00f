"""Links under strikes: a reset link, a silent link, and a link that loses the response to a completed request."""

import socket
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from deploy.embedded.valkey import EmbeddedValkey
from shared.db.database import Database
from tests.chaos.strikes.link_strikes import led_through, server_of
from tests.chaos.strikes.relays import Relays
from tests.support.processes.stack import wait_until
from tests.support.servers.links import Link

AN_HOUR = 3600.0
ASKED = b"PING\r\n"


@pytest.fixture
def link(valkey_server: EmbeddedValkey) -> Iterator[Link]:
    with Link(server_of(valkey_server.url)) as link:
        yield link


@pytest.fixture
def near(link: Link) -> Iterator[socket.socket]:
    """Yield a connection over the link that has received a response."""
    with socket.create_connection(("127.0.0.1", link.port), timeout=20) as near:
        near.sendall(ASKED)
        assert near.recv(99)  # The server demands a password.
        yield near


def test_reset_link_ends_connections_with_rst(link: Link, near: socket.socket) -> None:
    link.reset(1.0)
    with pytest.raises(ConnectionResetError):
        near.recv(99)


def test_link_without_strike_still_forwards(link: Link, near: socket.socket) -> None:
    link.reset(0.0)
    link.be_silent(0.0, 0.0)
    link.lose_answers(0.0, b"")
    near.sendall(ASKED)
    assert near.recv(99)


def test_silent_link_forwards_nothing_on_old_and_new_connections(link: Link, near: socket.socket) -> None:
    link.be_silent(1.0, AN_HOUR)
    with socket.create_connection(("127.0.0.1", link.port), timeout=20) as new:
        for each in (near, new):
            each.sendall(ASKED)
            each.settimeout(0.5)
            with pytest.raises(TimeoutError):
                each.recv(99)


def test_link_after_silence_forwards_what_it_kept_back(link: Link, near: socket.socket) -> None:
    link.be_silent(1.0, 0.3)
    near.sendall(ASKED)
    assert near.recv(99)


def test_link_without_server_is_reset_until_a_server_listens() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        with Link(server.getsockname()) as link:
            with (  # On a slow machine the reset may arrive before connect() returns.
                pytest.raises(ConnectionResetError),
                socket.create_connection(("127.0.0.1", link.port), timeout=20) as near,
            ):
                near.recv(99)
            server.listen()
            with socket.create_connection(("127.0.0.1", link.port), timeout=20), server.accept()[0]:
                pass


def test_request_with_lost_response_is_executed(valkey_server: EmbeddedValkey) -> None:
    with (
        closing(Relays({"valkey": server_of(valkey_server.url)})) as relays,
        redis.Redis.from_url(valkey_server.url) as direct,
        redis.Redis.from_url(
            led_through(valkey_server.url, relays.ports["valkey"]), retry=Retry(NoBackoff(), 0)
        ) as led,
    ):
        direct.delete("asked")
        led.ping()
        relays.lose_answers("valkey", 1.0, request="INCR")
        answered = 0

        def is_lost() -> bool:
            nonlocal answered
            try:
                answered = led.incr("asked")
            except redis.ConnectionError:
                return True
            return False

        wait_until(is_lost, "an answer to be lost")
        assert direct.get("asked") == str(answered + 1).encode()


def test_postgres_is_reachable_over_a_link(database_url: str) -> None:
    with Link(server_of(database_url)) as link:
        address = urlsplit(led_through(database_url, link.port))
        assert (address.hostname, address.port) == ("127.0.0.1", link.port)
        database = Database(
            address.geturl().replace("postgresql://", "postgresql+psycopg2://", 1), pool_size=1
        )
        database.check()
        database.dispose()
