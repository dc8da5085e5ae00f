"""Deferred responses under a real gunicorn of two threads, with clients that read fast, slowly or not at all."""

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.processes.stack import wait_until
from tests.web.server.trivial_front import TrivialFront, many_files, post, read_answer, trivial_front
from web.server.response_writer import BLOCKING_THREADS

APPLICATION = """
import gc, pathlib, threading, time
from gunicorn.workers.gthread import TConn
from shared.runtime.deferred_responses import WakeUp, DeferredResponse

HERE = pathlib.Path(__file__).parent

gc.disable()  # what is kept is kept by references

def waits(start_response):
    (HERE / "asked").touch()
    while not (HERE / "go").exists():
        yield b""
    start_response("200 OK", [("Content-Length", "4")])
    yield b"done"

def late(start_response):
    with (HERE / "asked").open("a") as asked:
        asked.write("x")
    while not (HERE / "go").exists():
        time.sleep(0.02)
    start_response("200 OK", [("Content-Length", "4")])
    yield b"late"

def rung(start_response, wake_up):
    is_over = []
    threading.Timer(0.5, lambda: (is_over.append(True), wake_up.notify())).start()
    while not is_over:
        yield b""
    start_response("200 OK", [("Content-Length", "4")])
    yield b"rung"

def timed(start_response):
    yield b""
    start_response("200 OK", [("Content-Length", "5")])
    yield b"timed"

def streams(start_response, piece):
    start_response("200 OK", [("Content-Type", "text/plain")])
    try:
        yield b"begun"
        while True:
            yield piece
    finally:
        with (HERE / "closed").open("a") as closed:
            closed.write("x")

def fails(start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    yield b"begun"
    yield b""
    raise RuntimeError

def application(environ, start_response):
    path, wake_up = environ["PATH_INFO"], WakeUp()
    if path == "/":
        start_response("200 OK", [("Content-Length", "2")])
        return [b"ok"]
    if path == "/kept":
        kept = b"%d" % sum(isinstance(one, (DeferredResponse, TConn)) for one in gc.get_objects())
        start_response("200 OK", [("Content-Length", str(len(kept)))])
        return [kept]
    body = environ["wsgi.input"].read()
    pieces = {
        "/waits": lambda: waits(start_response),
        "/late": lambda: late(start_response),
        "/rung": lambda: rung(start_response, wake_up),
        "/timed": lambda: timed(start_response),
        "/stream": lambda: streams(start_response, b""),
        "/flood": lambda: streams(start_response, bytes(1 << 16)),
        "/fails": lambda: fails(start_response),
    }[path]()
    idle = {"/rung": 60, "/late": 0}.get(path, 0.2)
    is_blocking = environ["QUERY_STRING"] == "blocking"
    return DeferredResponse(pieces, wake_up, idle_seconds=lambda: idle, is_blocking=is_blocking)
"""


@pytest.fixture
def front(tmp_path: Path) -> Iterator[TrivialFront]:
    with trivial_front(tmp_path, APPLICATION, WEB_SEND_SECONDS="1", WEB_DRAIN_SECONDS="3600") as running:
        yield running


@pytest.mark.parametrize("query", [b"", b"?blocking"])
def test_deferred_responses_use_no_thread_and_keep_their_connections(
    front: TrivialFront, query: bytes
) -> None:
    count = 1000
    request = post(b"x", path=b"/waits" + query)
    with many_files(count + 500), contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(front.connect(request)) for _ in range(count)]
        for _ in range(5):
            assert front.ask() == b"ok"
        (front.directory / "go").touch()
        for connection in waiting:
            assert read_answer(connection) == (200, b"done")
        for connection in waiting[:20]:
            connection.sendall(request)
            assert read_answer(connection) == (200, b"done")


def test_wake_up_ends_a_wait_at_once(front: TrivialFront) -> None:
    _ask_for_rung_answers(front)


def test_finished_responses_and_connections_are_freed(front: TrivialFront) -> None:
    for _ in range(2):
        _ask_for_rung_answers(front)
    # This test's own connection counts as one of them.
    kept = post(b"x", path=b"/kept")
    wait_until(lambda: int(front.ask(kept)) <= 2, "answers and connections are let go of")


def test_response_due_while_a_thread_reads_it_delays_no_other(front: TrivialFront) -> None:
    with front.connect(post(b"x", path=b"/late?blocking")) as late:
        wait_until((front.directory / "asked").exists, "a thread asks")
        with front.connect(post(b"x", path=b"/rung")) as other:
            assert read_answer(other) == (200, b"rung")
        (front.directory / "go").touch()
        assert read_answer(late) == (200, b"late")


def test_blocking_responses_delay_no_other_responses(
    front: TrivialFront,
) -> None:
    go = front.directory / "go"
    with contextlib.ExitStack() as stack:
        stack.callback(go.touch)  # otherwise the web process would wait for them if the test fails
        waiting = post(b"x", path=b"/late?blocking")
        late = [stack.enter_context(front.connect(waiting)) for _ in range(BLOCKING_THREADS)]
        wait_until(lambda: _count(front, "asked") == BLOCKING_THREADS, "all threads wait")
        with front.connect(post(b"x", path=b"/timed")) as other:
            assert read_answer(other) == (200, b"timed")
        with front.connect(post(b"x", path=b"/stream")) as other:
            _read_until(other, b"begun")
        wait_until(lambda: _count(front, "closed") == 1, "the answer of the client that left is closed")
        go.touch()
        for connection in late:
            assert read_answer(connection) == (200, b"late")


def test_client_that_hangs_up_ends_its_response(front: TrivialFront) -> None:
    with front.connect(post(b"x", path=b"/stream")) as connection:
        _read_until(connection, b"begun")
    wait_until(lambda: _count(front, "closed") == 1, "the answer is closed")


def test_pipelined_request_waits_for_the_deferred_response(front: TrivialFront) -> None:
    with front.connect(post(b"x", path=b"/waits") + post(b"x", path=b"/rung")) as connection:
        time.sleep(0.3)
        (front.directory / "go").touch()
        assert [read_answer(connection)[1] for _ in range(2)] == [b"done", b"rung"]


def test_clients_that_do_not_read_are_disconnected_and_little_is_buffered(front: TrivialFront) -> None:
    assert front.ask() == b"ok"
    worker = psutil.Process(front.process.pid).children()[0]
    before = worker.memory_info().rss
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", front.port))
            connection.sendall(post(b"x", path=b"/flood"))
        most = 0
        while _count(front, "closed") < 100:
            most = max(most, worker.memory_info().rss)
            assert front.ask() == b"ok"
            time.sleep(0.05)
    assert most - before < 40 << 20


def test_failed_deferred_response_is_aborted(front: TrivialFront) -> None:
    with front.connect(post(b"x", path=b"/fails")) as connection:
        received = _read_until(connection, b"begun")
        while piece := connection.recv(100):
            received += piece
    assert not received.endswith(b"0\r\n\r\n")


def test_drain_waits_for_deferred_responses(front: TrivialFront) -> None:
    with front.connect(post(b"x", path=b"/waits")) as connection:
        wait_until((front.directory / "asked").exists, "the request is under way")
        front.process.terminate()
        time.sleep(0.5)
        (front.directory / "go").touch()
        assert read_answer(connection) == (200, b"done")
    assert front.process.wait(60) == 0


def _ask_for_rung_answers(front: TrivialFront) -> None:
    with contextlib.ExitStack() as stack:
        asking = [stack.enter_context(front.connect(post(b"x", path=b"/rung"))) for _ in range(50)]
        assert {read_answer(connection) for connection in asking} == {(200, b"rung")}


def _read_until(connection: socket.socket, text: bytes) -> bytes:
    received = b""
    while text not in received:
        piece = connection.recv(1 << 16)
        assert piece, received
        received += piece
    return received


def _count(front: TrivialFront, happened: str) -> int:
    path = front.directory / happened
    return len(path.read_text()) if path.exists() else 0
