"""A front that is asked to end loses no request: what has come is answered, what comes too late is refused."""

import contextlib
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.deploy.trivial_front import TrivialFront, post, read_answer, trivial_front
from tests.support.stack import wait_until

CLIENTS = 40
STORM_SECONDS = 1.0


@dataclass
class Newcomers:
    """Clients that make a connection for each request, until a front refuses one."""

    front: TrivialFront
    answered: int = 0
    lost: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def come(self) -> None:
        """Ask again and again."""
        while True:
            try:
                connection = self.front.connect()
            except OSError:
                return  # refused: nothing was sent, and nothing is lost
            with connection:
                try:
                    connection.sendall(post(b"new"))
                    is_answered = read_answer(connection) == (200, b"new")
                except (OSError, AssertionError) as error:
                    is_answered = False
                    self.lost.append(repr(error))
            with self._lock:
                self.answered += is_answered


def test_no_connection_that_was_taken_is_reset(tmp_path: Path) -> None:
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


def test_kept_connections_are_answered_and_told_to_close(tmp_path: Path) -> None:
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


def _refuses(front: TrivialFront) -> bool:
    try:
        front.connect().close()
    except ConnectionRefusedError:
        return True
    return False
