"""Deadlines of request bodies: slow clients are cut off, and others are served meanwhile."""

import hashlib
import io
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from shared.fairness.admission import ConcurrencyLimited, Pool
from tests.support.files.bodies import CONTENT_TYPE, multipart
from tests.support.files.serving import Reply, ask, begin_upload, gunicorn, read_reply
from web.http.receive_deadlines import BodyReceiver
from web.http.wsgi_middleware import BODY_READ

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CONTENT = os.urandom(3 << 20)
GRACE_SECONDS = 0.05


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with gunicorn(threads=8, ROOM="7") as port:  # one address may use three of the slots
        yield port


def upload(port: int, body: bytes, *, chunk_bytes: int | None = None, query: str = "") -> Reply:
    with begin_upload(port, len(body) if chunk_bytes is None else None, query) as connection:
        send_body(connection, body, chunk_bytes)
        return read_reply(connection)


def upload_at_once(port: int, body: bytes) -> Reply:
    """Send head and body in one piece."""
    head = f"POST /upload HTTP/1.1\r\nHost: x\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(head.encode() + body)
        return read_reply(connection)


def send_body(connection: socket.socket, body: bytes, chunk_bytes: int | None) -> None:
    if chunk_bytes is None:
        connection.sendall(body)
        return
    for start in range(0, len(body), chunk_bytes):
        chunk = body[start : start + chunk_bytes]
        connection.sendall(b"%x\r\n%b\r\n" % (len(chunk), chunk))
    connection.sendall(b"0\r\n\r\n")


def drip(connection: socket.socket, beginning: bytes) -> None:
    """Send a few bytes a second until the server closes the connection."""
    with suppress(OSError):
        for byte in beginning + b"x" * 1000:
            connection.sendall(bytes([byte]))
            time.sleep(0.05)


def code(reply: Reply) -> str:
    return str(json.loads(reply.body)["code"])


@pytest.mark.parametrize("chunk_bytes", [None, 100_000, 7000])
@pytest.mark.parametrize("size", [0, 100, len(CONTENT)])
def test_bodies_of_known_and_unknown_length_are_received(
    port: int, size: int, chunk_bytes: int | None
) -> None:
    reply = upload(port, multipart(CONTENT[:size]), chunk_bytes=chunk_bytes, query=f"?{size}")
    assert reply.status == 201
    assert json.loads(reply.body)["sha256"] == hashlib.sha256(CONTENT[:size]).hexdigest()


def test_receive_deadlines_are_cut_off_while_others_are_served(port: int) -> None:
    senders = [begin_upload(port, 5 << 30, f"?{5 << 30}") for _ in range(2)] + [begin_upload(port, None)]
    threads = [threading.Thread(target=drip, args=(sender, b"4000\r\n--bd-7f3a\r\n")) for sender in senders]
    for thread in threads:
        thread.start()
    asked = 0
    while any(thread.is_alive() for thread in threads) and asked < 20:
        assert ask(port, "/").status == 200
        asked += 1
        time.sleep(0.05)
    statuses = [read_reply(sender).status for sender in senders]
    for sender, thread in zip(senders, threads, strict=True):
        sender.close()
        thread.join()
    assert statuses == [408, 408, 408]
    assert asked > 5


def test_silent_sender_is_cut_off_with_a_reason(port: int) -> None:
    with begin_upload(port, 1000) as silent:
        reply = read_reply(silent)
    assert (reply.status, code(reply)) == (408, "upload_timeout")
    assert reply.headers["Connection"] == "close"


def test_steady_sender_may_exceed_the_grace_period(port: int) -> None:
    body = multipart(CONTENT[:200_000])
    with begin_upload(port, len(body)) as connection:
        for start in range(0, len(body), 20_000):
            connection.sendall(body[start : start + 20_000])
            time.sleep(0.15)
        assert read_reply(connection).status == 201


def test_address_with_its_maximum_of_bodies_is_refused_another(port: int) -> None:
    waiting = [begin_upload(port, 1000) for _ in range(3)]
    time.sleep(0.2)
    with begin_upload(port, 1000) as another:
        reply = read_reply(another)
    assert (reply.status, code(reply)) == (429, "concurrency_limit")
    assert upload_at_once(port, multipart(b"x")).status == 201, "what is all there needs no room"
    for connection in waiting:
        assert read_reply(connection).status == 408
        connection.close()
    assert upload(port, multipart(b"x")).status == 201


def test_a_body_that_ends_early_is_refused_and_its_connection_closed(port: int) -> None:
    body = multipart(CONTENT[:5000])
    with begin_upload(port, len(body)) as connection:
        connection.sendall(body[:-3])
        connection.shutdown(socket.SHUT_WR)
        reply = read_reply(connection)
    assert (reply.status, code(reply), reply.headers["Connection"]) == (400, "malformed_request", "close")


@pytest.mark.parametrize(
    ("chunk", "status"),
    [(b"zz\r\n", 400), (b"5\r\nabcdefgh\r\n", 400), (b"FFFFFFFFFFFFFFFFF\r\nabc", 408)],
    ids=["no size", "longer than it says", "never whole"],
)
def test_broken_chunks_are_refused(port: int, chunk: bytes, status: int) -> None:
    with begin_upload(port, None) as connection:
        connection.sendall(chunk)
        assert read_reply(connection).status == status


def test_a_connection_serves_the_next_request_after_a_refused_body(port: int) -> None:
    body = multipart(b"xx")
    with begin_upload(port, len(body), "?1") as connection:
        connection.sendall(body)
        reply = read_reply(connection)
        assert (reply.status, code(reply)) == (422, "byte_size_mismatch")
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_reply(connection).body == b"well"


def test_rest_of_a_long_refused_body_is_never_parsed_as_a_request(port: int) -> None:
    smuggled = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 100_000
    body = multipart(CONTENT + smuggled)
    with begin_upload(port, len(body), "?5") as connection:
        sender = threading.Thread(target=send_quietly, args=(connection, body))
        sender.start()
        reply = read_reply(connection)
        assert (reply.status, code(reply), reply.headers["Connection"]) == (
            422,
            "byte_size_mismatch",
            "close",
        )
        sender.join()
        assert not read_quietly(connection)


def test_pipelined_requests_are_answered_in_order(port: int) -> None:
    body = multipart(CONTENT[:70_000])
    with begin_upload(port, len(body)) as connection:
        connection.sendall(body + b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answers = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert answers.count(b"HTTP/1.1 201") == 1
    assert answers.endswith(b"well")


def send_quietly(connection: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        connection.sendall(data)


def read_quietly(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 16)
    except OSError:
        return b""


def test_under_another_server_bodies_are_received_without_a_clock() -> None:
    receptions = BodyReceiver(Pool("uploads", 1, max_wait_seconds=0))
    environ = {"wsgi.input": io.BytesIO(b"abcdef"), "CONTENT_LENGTH": "4"}
    with receptions.admit(environ) as body:
        buffer = bytearray(10)
        assert body.readinto(memoryview(buffer)) == 4
        assert body.readinto(memoryview(buffer)) == 0
    assert buffer[:4] == b"abcd"
    assert environ[BODY_READ] is True


class ReadAfterSleeping(io.RawIOBase):
    """Reads a connection after the process was paused during the wait for bytes."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._connection = connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        time.sleep(10 * GRACE_SECONDS)
        return self._connection.recv_into(buffer)


def test_sender_with_bytes_arrived_during_a_pause_is_not_cut_off() -> None:
    pool = Pool("uploads", 1, max_wait_seconds=0)
    receptions = BodyReceiver(pool, grace_seconds=GRACE_SECONDS, minimum_bytes_per_second=1 << 30)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"abcd")
        environ = {
            "wsgi.input": ReadAfterSleeping(ours),
            "CONTENT_LENGTH": "4",
            "gunicorn.socket": ours,
        }
        with receptions.admit(environ) as body:
            assert body.readinto(memoryview(bytearray(10))) == 4
            assert not body.is_cut_off


def test_slot_is_released_after_any_error() -> None:
    receptions = BodyReceiver(Pool("uploads", 1, max_wait_seconds=0))
    environ = {"wsgi.input": io.BytesIO(b""), "CONTENT_LENGTH": "0"}
    with receptions.admit(environ), pytest.raises(ConcurrencyLimited):
        receptions.admit(environ).__enter__()
    with pytest.raises(KeyError), receptions.admit(environ):
        raise KeyError
    with receptions.admit(environ) as body:
        assert body.readinto(memoryview(bytearray(1))) == 0
