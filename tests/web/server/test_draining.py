"""A draining web process loses no request: accepted ones are answered, later ones are refused."""

import contextlib
import http.client
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.processes.stack import wait_until
from tests.web.server.trivial_front import TrivialFront, post, read_answer, trivial_front

CLIENTS = 40
STORM_SECONDS = 1.0
DRAIN_SECONDS = "10"
WAITING = """
import threading
from shared.runtime.deferred_responses import WakeUp, DeferredResponse

def application(environ, start_response):
    environ["wsgi.input"].read()
    wake_up, over = WakeUp(), threading.Event()

    def pieces():
        start_response("200 OK", [("Content-Type", "text/plain")])
        yield b"begun, "
        while not over.is_set():
            yield b""
        yield b"ended"

    return DeferredResponse(pieces(), wake_up, idle_seconds=lambda: 600.0, is_blocking=False, shut_down=over.set)
"""


@dataclass
class Newcomers:
    """Clients that open a connection for each request, until one is refused."""

    front: TrivialFront
    answered: int = 0
    lost: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def come(self) -> None:
        """Send requests until a connection is refused."""
        while True:
            try:
                connection = self.front.connect()
            except OSError:
                return  # refused: no request was sent, so none is lost
            with connection:
                try:
                    connection.sendall(post(b"new"))
                    is_answered = read_answer(connection) == (200, b"new")
                except (OSError, AssertionError) as error:
                    is_answered = False
                    self.lost.append(repr(error))
            with self._lock:
                self.answered += is_answered


def test_accepted_connections_are_not_reset(tmp_path: Path) -> None:
    with trivial_front(tmp_path, WEB_PROCESSES="2", WEB_THREADS="8") as front:
        newcomers = Newcomers(front)
        threads = [threading.Thread(target=newcomers.come) for _ in range(16)]
        for thread in threads:
            thread.start()
        time.sleep(STORM_SECONDS)
        front.process.terminate()
        for thread in threads:
            thread.join(90)
        assert front.process.wait(60) == 0
    assert newcomers.answered > 0
    assert newcomers.lost == []


def test_kept_connections_are_answered_with_connection_close(tmp_path: Path) -> None:
    with (
        trivial_front(tmp_path, WEB_PROCESSES="2", WEB_THREADS="8") as front,
        contextlib.ExitStack() as stack,
    ):
        kept = [stack.enter_context(front.connect(post(b"first"))) for _ in range(CLIENTS)]
        assert {read_answer(connection) for connection in kept} == {(200, b"first")}
        front.process.terminate()
        for connection in kept[::2]:
            connection.sendall(post(b"at once"))
        assert {read_answer(connection) for connection in kept[::2]} == {(200, b"at once")}
        wait_until(lambda: _refuses(front), "the front listens no longer")
        for connection in kept[1::2]:
            connection.sendall(post(b"later"))
        for connection in kept[1::2]:
            answer = connection.recv(1 << 16)
            assert b"\r\nConnection: close\r\n" in answer
            assert answer.endswith(b"later")
        assert front.process.wait(60) == 0


def test_deferred_responses_end_completely_before_the_drain_ends(tmp_path: Path) -> None:
    with (
        trivial_front(tmp_path, WAITING, WEB_DRAIN_SECONDS=DRAIN_SECONDS) as front,
        front.connect(post(b"x")) as one,
        front.connect(post(b"x")) as other,
    ):
        waiting = [_begun(connection) for connection in (one, other)]
        front.process.terminate()
        assert [answer.read() for answer in waiting] == [b"ended", b"ended"]
        # A client that sends another request on a kept connection is not cut off either.
        one.sendall(post(b"x"))
        late = _begun(one)
        assert late.getheader("Connection") == "close"
        assert late.read() == b"ended"
        other.close()
        assert front.process.wait(60) == 0


def _begun(connection: socket.socket) -> http.client.HTTPResponse:
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    assert answer.read(7) == b"begun, "
    return answer


def _refuses(front: TrivialFront) -> bool:
    try:
        front.connect().close()
    except ConnectionRefusedError:
        return True
    return False
