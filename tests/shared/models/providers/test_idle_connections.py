"""A request lost with an idle connection is sent once more if the upstream acknowledged none of it."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from urllib3.connection import HTTPConnection

from shared.models.dialects.requests import UPSTREAM_DIALECTS, Dialect
from shared.models.providers.errors import ProviderError
from shared.models.providers.routing import Router
from tests.shared.models.providers.calls import events_of, model, text_of
from tests.shared.models.providers.test_tls import certificate as certificate  # noqa: PLC0414 (a fixture)
from tests.shared.models.providers.test_tls import secure_upstream as secure_upstream  # noqa: PLC0414
from tests.support.models.upstreams import FakeUpstream
from tests.support.processes.stack import wait_until

RESET = struct.pack("ii", 1, 0)


@pytest.fixture
def unnoticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The upstream closes in the moment of the request: a check of the connection found nothing."""
    monkeypatch.setattr(HTTPConnection, "is_connected", property(lambda connection: connection.sock))


def close_idle(upstream: FakeUpstream) -> None:
    upstream.close_connections()
    wait_until(lambda: not upstream.is_connected, "all connections are closed")


@pytest.mark.usefixtures("unnoticed")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", UPSTREAM_DIALECTS)
def test_a_request_is_sent_again_over_a_new_connection(
    router: Router, upstream: FakeUpstream, dialect: Dialect, *, stream: bool
) -> None:
    entry = model(upstream.base_url, dialect=dialect, retries=0)
    events_of(router, entry, stream=stream)
    close_idle(upstream)
    assert events_of(router, entry, stream=stream)
    assert (len(upstream.received), upstream.connections) == (2, 2)


@pytest.mark.usefixtures("unnoticed")
def test_so_is_a_large_one(router: Router, upstream: FakeUpstream) -> None:
    entry = model(upstream.base_url, retries=0)
    events_of(router, entry)
    close_idle(upstream)
    assert text_of(events_of(router, entry, text="x" * (8 << 20)))
    assert len(upstream.received) == 2


@pytest.mark.usefixtures("unnoticed")
def test_so_is_one_over_tls(router: Router, secure_upstream: FakeUpstream, certificate: Path) -> None:
    entry = model(secure_upstream.base_url, provider_keys=f'ca_file = "{certificate}"', retries=0)
    events_of(router, entry)
    close_idle(secure_upstream)
    assert text_of(events_of(router, entry))
    assert len(secure_upstream.received) == 2


@pytest.mark.usefixtures("unnoticed")
def test_all_stale_connections_cost_one_call_one_repetition(router: Router, upstream: FakeUpstream) -> None:
    entry = model(upstream.base_url, retries=0)
    callers = [threading.Thread(target=events_of, args=(router, entry)) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    close_idle(upstream)
    before = upstream.connections
    assert text_of(events_of(router, entry))
    assert upstream.connections == before + 1


class Taker:
    """An upstream that responds to the first request of a connection, and closes it at the second one."""

    def __init__(self, *, resets: bool) -> None:
        self.requests = 0
        self._resets = resets
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/v1"

    @contextmanager
    def running(self) -> Iterator[None]:
        threading.Thread(target=self._serve, daemon=True).start()
        try:
            yield
        finally:
            self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()

    def _serve(self) -> None:
        try:
            while True:
                connection, _ = self._listening.accept()
                with connection:
                    self._converse(connection)
        except OSError:
            return

    def _converse(self, connection: socket.socket) -> None:
        self._take(connection)
        reply = b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}}]}'
        connection.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(reply)
            + reply
        )
        self._take(connection)
        if self._resets:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    def _take(self, connection: socket.socket) -> None:
        received = b""
        while not received.endswith(b"}"):
            received += connection.recv(1 << 20)
        self.requests += 1


@pytest.mark.parametrize("resets", [False, True])
def test_a_request_that_was_taken_is_never_sent_again(router: Router, *, resets: bool) -> None:
    taker = Taker(resets=resets)
    entry = model(taker.base_url, retries=2)
    with taker.running():
        events_of(router, entry)
        with pytest.raises(ProviderError) as caught:
            events_of(router, entry)
    assert (taker.requests, caught.value.may_have_cost) == (2, True)


def test_a_new_connection_that_breaks_is_no_idle_one(router: Router) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        entry = model(f"http://127.0.0.1:{listening.getsockname()[1]}/v1", retries=0)
        accepted = []

        def break_off() -> None:
            connection, _ = listening.accept()
            accepted.append(connection)
            connection.close()

        breaking = threading.Thread(target=break_off)
        breaking.start()
        with pytest.raises(ProviderError):
            events_of(router, entry)
        breaking.join()
    assert len(accepted) == 1
