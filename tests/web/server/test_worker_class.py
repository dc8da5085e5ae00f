"""A web process with two threads, and anonymous clients that send little, slowly or nothing."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes.stack import wait_until
from tests.web.server.trivial_front import (
    TrivialFront,
    is_hung_up,
    many_files,
    post,
    read_answer,
    trivial_front,
)

HALF_HEAD = b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrivialFront]:
    """A server with timeouts of minutes, so that only freeing threads can help."""
    settings = {"WEB_HEAD_SECONDS": "120", "WEB_SMALL_BODY_SECONDS": "120"}
    with trivial_front(tmp_path_factory.mktemp("front"), **settings) as running:
        yield running


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[TrivialFront]:
    """A server that waits one second for a head and for a body."""
    with trivial_front(tmp_path, WEB_HEAD_SECONDS="1", WEB_SMALL_BODY_SECONDS="1") as running:
        yield running


@pytest.mark.parametrize(
    ("count", "sent"),
    [(2100, b""), (1100, HALF_HEAD), (200, post(b"17 bytes of 1000.", length=1000))],
    ids=["silent connections", "unfinished heads", "unfinished bodies"],
)
def test_incomplete_requests_delay_no_other_client(front: TrivialFront, count: int, sent: bytes) -> None:
    with many_files(count + 500), contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(front.connect(sent)) for _ in range(count)]
        for _ in range(5):
            assert front.ask() == b"ok"
            assert front.ask(post(b"all of it")) == b"all of it"
        assert strangers


def test_incomplete_pipelined_request_uses_no_thread(front: TrivialFront) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(20):
            connection = stack.enter_context(front.connect(GET + (HALF_HEAD if number % 2 else GET[:-1])))
            assert read_answer(connection)[1] == b"ok"
        assert front.ask() == b"ok"
        connection.sendall(b"done\r\n\r\n")
        assert read_answer(connection)[1] == b"ok"


def test_pipelined_requests_are_answered_in_order(front: TrivialFront) -> None:
    with front.connect(b"".join(post(b"number %d" % number) for number in range(50))) as connection:
        bodies = [read_answer(connection)[1] for _ in range(50)]
    assert bodies == [b"number %d" % number for number in range(50)]


@pytest.mark.parametrize("size", [1, 100 << 10, 1 << 20])
def test_a_body_arrives_whole_however_it_is_cut(front: TrivialFront, size: int) -> None:
    body = bytes(range(256)) * (size // 256) or b"x"
    request = post(body)
    with front.connect() as connection:
        for begin in range(0, len(request), 40_000):
            connection.sendall(request[begin : begin + 40_000])
            time.sleep(0.01)
        assert read_answer(connection) == (200, body)


def test_chunks_and_announced_bodies_are_read_by_the_thread(front: TrivialFront) -> None:
    chunked = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with front.connect(chunked) as connection:
        connection.sendall(b"5\r\nhello\r\n0\r\n\r\n")
        assert read_answer(connection)[1] == b"hello"
    with front.connect(
        b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    ) as asking:
        assert asking.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        asking.sendall(b"hi")
        assert read_answer(asking)[1] == b"hi"


def test_missing_body_is_refused_and_missing_head_closes_the_connection(hasty: TrivialFront) -> None:
    with (
        hasty.connect(post(b"begun", length=1000)) as body,
        hasty.connect(HALF_HEAD) as head,
        hasty.connect() as silent,
    ):
        assert read_answer(body)[0] == 408
        assert is_hung_up(body)
        assert is_hung_up(head)
        assert is_hung_up(silent)


def test_a_deadline_is_not_put_off_by_single_bytes(hasty: TrivialFront) -> None:
    with hasty.connect(HALF_HEAD) as connection:
        connection.settimeout(0.1)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):  # noqa: PT012 (a loop until it happens)
            while True:
                connection.sendall(b"x")
                time.sleep(0.1)


def test_a_head_without_end_is_refused(front: TrivialFront) -> None:
    with front.connect(b"GET / HTTP/1.1\r\nX-Long: " + b"x" * 70_000) as connection:
        assert read_answer(connection)[0] == 431
    with front.connect(b"GET / HTTP/1.1\nHost: x\n\n") as connection:
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 400")


def test_the_address_with_most_connections_makes_room_for_others(tmp_path: Path) -> None:
    with trivial_front(tmp_path, WEB_CONNECTIONS="40") as front, contextlib.ExitStack() as stack:
        patient = stack.enter_context(front.connect(HALF_HEAD, address="127.0.0.2"))
        greedy = [stack.enter_context(front.connect(HALF_HEAD)) for _ in range(60)]
        assert front.ask(address="127.0.0.3") == b"ok"
        patient.sendall(b"done\r\n\r\n")
        assert read_answer(patient)[1] == b"ok"
        assert is_hung_up(greedy[0])


def test_the_address_with_most_bytes_makes_room_for_others(tmp_path: Path) -> None:
    with trivial_front(tmp_path, WEB_GATHERED_BYTES=str(1 << 20)) as front, contextlib.ExitStack() as stack:
        patient = stack.enter_context(front.connect(post(b"a" * 1000, length=1001), address="127.0.0.2"))
        big = post(b"a" * (100 << 10), length=101 << 10)
        greedy = [stack.enter_context(front.connect(big)) for _ in range(20)]
        assert read_answer(greedy[0])[0] == 429
        patient.sendall(b"a")
        assert read_answer(patient)[1] == b"a" * 1001


def test_burst_of_one_credential_is_queued_and_delays_no_other(tmp_path: Path) -> None:
    request = b"POST /slow HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer mine\r\nContent-Length: 4\r\n\r\nslow"
    with trivial_front(tmp_path, WEB_THREADS="8") as front, contextlib.ExitStack() as stack:
        burst = [stack.enter_context(front.connect(request)) for _ in range(8)]
        gone = [front.connect(request) for _ in range(200)]
        for connection in gone:
            connection.close()
        for _ in range(5):
            assert front.ask() == b"ok"
        assert [read_answer(connection) for connection in burst] == [(200, b"slow")] * 8


def test_request_gets_its_waiting_time_in_the_environ(tmp_path: Path) -> None:
    application = """
import time

def application(environ, start_response):
    time.sleep(0.5)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"waited" if environ["quartermaster.waited_seconds"] > 0.4 else b"at once"]
"""
    request = b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer mine\r\nConnection: close\r\n\r\n"
    with trivial_front(tmp_path, application, WEB_THREADS="8") as front, contextlib.ExitStack() as stack:
        asked = [stack.enter_context(front.connect(request)) for _ in range(3)]
        answers = b"".join(connection.makefile("rb").read() for connection in asked)
    assert (answers.count(b"at once"), answers.count(b"waited")) == (2, 1)


def test_drain_answers_arrived_requests_and_waits_for_no_others(tmp_path: Path) -> None:
    with trivial_front(tmp_path, WEB_DRAIN_SECONDS="3600") as front, contextlib.ExitStack() as stack:
        for sent in (b"", HALF_HEAD, post(b"begun", length=1000)):
            stack.enter_context(front.connect(sent))
        slow = [stack.enter_context(front.connect(post(b"slow", path=b"/slow"))) for _ in range(4)]
        wait_until((front.directory / "begun").exists, "a thread has begun")
        front.process.terminate()
        assert [read_answer(connection) for connection in slow] == [(200, b"slow")] * 4
        assert front.process.wait(60) == 0, "the half of a request was waited for"
