"""Links that are struck at: who asks is told by an RST, hears nothing, or never learns that it was done."""

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
    """A connection over the link that has been answered."""
    with socket.create_connection(("127.0.0.1", link.port), timeout=20) as near:
        near.sendall(ASKED)
        assert near.recv(99)  # that it wants a password
        yield near


def test_a_link_that_is_reset_says_so(link: Link, near: socket.socket) -> None:
    link.reset(1.0)
    with pytest.raises(ConnectionResetError):
        near.recv(99)


def test_what_is_not_struck_goes_on(link: Link, near: socket.socket) -> None:
    link.reset(0.0)
    link.be_silent(0.0, 0.0)
    link.lose_answers(0.0, b"")
    near.sendall(ASKED)
    assert near.recv(99)


def test_a_silent_link_says_nothing_to_old_and_new(link: Link, near: socket.socket) -> None:
    link.be_silent(1.0, AN_HOUR)
    with socket.create_connection(("127.0.0.1", link.port), timeout=20) as new:
        for each in (near, new):
            each.sendall(ASKED)
            each.settimeout(0.5)
            with pytest.raises(TimeoutError):
                each.recv(99)


def test_a_link_whose_silence_is_over_says_what_it_kept_back(link: Link, near: socket.socket) -> None:
    link.be_silent(1.0, 0.3)
    near.sendall(ASKED)
    assert near.recv(99)


def test_a_link_to_nowhere_is_reset_and_leads_there_once_somebody_listens() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        with Link(server.getsockname()) as link:
            with (  # a slow machine hears of it before it is connected
                pytest.raises(ConnectionResetError),
                socket.create_connection(("127.0.0.1", link.port), timeout=20) as near,
            ):
                near.recv(99)
            server.listen()
            with socket.create_connection(("127.0.0.1", link.port), timeout=20), server.accept()[0]:
                pass


def test_a_request_whose_answer_is_lost_has_been_done(valkey_server: EmbeddedValkey) -> None:
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


def test_postgres_is_reached_by_a_link(database_url: str) -> None:
    with Link(server_of(database_url)) as link:
        address = urlsplit(led_through(database_url, link.port))
        assert (address.hostname, address.port) == ("127.0.0.1", link.port)
        database = Database(
            address.geturl().replace("postgresql://", "postgresql+psycopg2://", 1), pool_size=1
        )
        database.check()
        database.dispose()
