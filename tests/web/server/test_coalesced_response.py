"""A response's head is sent with the first piece of its body, without any change of the framing."""

import logging
import socket
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from gunicorn.config import Config  # type: ignore[import-untyped]
from gunicorn.http import RequestParser, wsgi  # type: ignore[import-untyped]

from web.server.coalesced_response import CoalescedResponse, send_response

Ask = Callable[..., list[bytes]]
log = logging.getLogger(__name__)


@pytest.fixture
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection on which each send is received separately."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        theirs.settimeout(60)
        yield ours, theirs


@pytest.fixture
def ask(connection: tuple[socket.socket, socket.socket]) -> Ask:
    """Let an application answer. Return the bytes of each send."""
    ours, theirs = connection

    def ask(application: Any, method: str = "GET") -> list[bytes]:
        config = Config()
        head = f"{method} / HTTP/1.1\r\nHost: here\r\n\r\n".encode()
        request = next(RequestParser(config, iter([head]), ("192.0.2.1", 1)))
        response, environ = wsgi.create(
            request, ours, ("192.0.2.1", 1), ("192.0.2.2", 80), config, response_class=CoalescedResponse
        )
        send_response(application, environ, response, log)
        ours.shutdown(socket.SHUT_WR)
        return list(iter(lambda: theirs.recv(1 << 20), b""))

    return ask


def plain(status: str, headers: list[tuple[str, str]], *pieces: bytes) -> Any:
    def application(_: Any, start_response: Any) -> list[bytes]:
        start_response(status, headers)
        return list(pieces)

    return application


def test_short_response_is_one_send(ask: Ask) -> None:
    (sent,) = ask(plain("200 OK", [("Content-Length", "5")], b"whole"))
    head, _, body = sent.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nContent-Length: 5" in head
    assert body == b"whole"


def test_a_stream_sends_its_head_with_its_first_piece(ask: Ask) -> None:
    first, *rest = ask(plain("200 OK", [], b"", b"first", b"second"))
    assert b"\r\nTransfer-Encoding: chunked\r\n" in first
    assert first.endswith(b"\r\n\r\n5\r\nfirst\r\n")
    assert rest == [b"6\r\nsecond\r\n", b"0\r\n\r\n"]


@pytest.mark.parametrize(
    ("method", "status", "headers", "pieces"),
    [
        ("HEAD", "200 OK", [("Content-Length", "5")], []),
        ("GET", "204 No Content", [], []),
        ("GET", "200 OK", [("Content-Length", "0")], []),
        ("GET", "304 Not Modified", [("ETag", '"x"')], []),
    ],
)
def test_response_without_a_body_is_its_head(
    ask: Ask, method: str, status: str, headers: list[tuple[str, str]], pieces: list[bytes]
) -> None:
    (sent,) = ask(plain(status, headers, *pieces), method)
    assert sent.startswith(f"HTTP/1.1 {status}\r\n".encode())
    assert sent.endswith(b"\r\n\r\n")
    assert sent.count(b"\r\n\r\n") == 1


def test_an_empty_stream_is_sent_to_its_end(ask: Ask) -> None:
    (sent,) = ask(plain("200 OK", []))
    assert sent.endswith(b"\r\n\r\n0\r\n\r\n")


@pytest.mark.parametrize("has_descriptor", [True, False])
def test_the_head_of_a_file_is_sent_before_it(ask: Ask, tmp_path: Path, *, has_descriptor: bool) -> None:
    path = tmp_path / "content"
    path.write_bytes(b"content")

    def application(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [("Content-Length", "7")])
        return environ["wsgi.file_wrapper"](path.open("rb") if has_descriptor else BytesIO(b"content"))

    sent = b"".join(ask(application))
    head, _, body = sent.partition(b"\r\n\r\n")
    assert (head[:15], body) == (b"HTTP/1.1 200 OK", b"content")


def test_response_that_fails_before_its_first_piece_sends_nothing(ask: Ask) -> None:
    def application(_: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [])
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        ask(application)


def test_response_that_fails_in_its_middle_is_aborted(
    ask: Ask, connection: tuple[socket.socket, socket.socket]
) -> None:
    closed = []

    class Pieces:
        def __iter__(self) -> Iterator[bytes]:
            yield b"first"
            raise RuntimeError("broken")

        def close(self) -> None:
            closed.append(True)

    def application(_: Any, start_response: Any) -> Pieces:
        start_response("200 OK", [])
        return Pieces()

    # As gunicorn closes a connection: its own error page would become part of the response.
    with pytest.raises(StopIteration):
        ask(application)
    received = b"".join(iter(lambda: connection[1].recv(1 << 20), b""))
    assert received.endswith(b"5\r\nfirst\r\n"), "it does not look as if it were whole"
    assert closed == [True]
