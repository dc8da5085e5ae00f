"""A real gunicorn refuses requests with an ambiguous end, and does not parse what follows them as a request."""

import contextlib
from collections.abc import Iterator

import pytest

from tests.web.server.trivial_front import TrivialFront, read_answer, trivial_front

APPLICATION = """
import pathlib

HERE = pathlib.Path(__file__).parent

def application(environ, start_response):
    environ["wsgi.input"].read()
    with (HERE / "asked").open("a") as asked:
        asked.write(environ["PATH_INFO"] + "\\n")
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked"
NO_CHUNK = b"0\r\n\r\n"
AMBIGUOUS = {
    "length and chunks": (b"Content-Length: 5\r\n" + CHUNKED, NO_CHUNK),
    "chunks and length": (CHUNKED + b"\r\nContent-Length: 5", NO_CHUNK),
    "two lengths": (b"Content-Length: 1\r\nContent-Length: 5", b"x"),
    "one length twice": (b"Content-Length: 0\r\nContent-Length: 0", b""),
    "lengths in one": (b"Content-Length: 0, 0", b""),
    "length with a sign": (b"Content-Length: +0", b""),
    "length below zero": (b"Content-Length: -1", b""),
    "length in hexadecimal": (b"Content-Length: 0x0", b""),
    "length with an underscore": (b"Content-Length: 0_0", b""),
    "length without digits": (b"Content-Length: ", b""),
    "length in other digits": ("Content-Length: \u0660".encode(), b""),
    "space before the colon of the length": (b"Content-Length : 0", b""),
    "unknown coding": (b"Transfer-Encoding: xchunked", NO_CHUNK),
    "chunks that are not last": (b"Transfer-Encoding: chunked, identity", NO_CHUNK),
    "chunks twice": (b"Transfer-Encoding: chunked\r\n" + CHUNKED, NO_CHUNK),
    "space before the colon of the coding": (b"Transfer-Encoding : chunked", NO_CHUNK),
    "coding after a tab": (b"Transfer-Encoding:\x0bchunked", NO_CHUNK),
    "folded": (b"X: y\r\n Transfer-Encoding: chunked", NO_CHUNK),
    "folded by a tab": (b"Content-Length:\r\n\t0", b""),
    "zero byte": (b"X: a\x00b\r\nContent-Length: 0", b""),
    "bare carriage return": (b"X: a\rContent-Length: 0", b""),
    "line without a colon": (b"Content-Length 0", b""),
    "nameless": (b": x\r\nContent-Length: 0", b""),
    "two hosts": (b"Host: y\r\nContent-Length: 0", b""),
    "size of a chunk with a sign": (CHUNKED, b"+0\r\n\r\n"),
    "size of a chunk in hexadecimal": (CHUNKED, b"0x0\r\n\r\n"),
    "size of a chunk with an underscore": (CHUNKED, b"0_0\r\n\r\n"),
    "chunk that ends in a bare line feed": (CHUNKED, b"1\nx\n0\n\n"),
    "chunk longer than it says": (CHUNKED, b"1\r\nxyz\r\n0\r\n\r\n"),
}


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrivialFront]:
    with trivial_front(tmp_path_factory.mktemp("front"), APPLICATION) as running:
        yield running


def asked(front: TrivialFront) -> list[str]:
    path = front.directory / "asked"
    return path.read_text().split() if path.exists() else []


def refused(front: TrivialFront, request: bytes) -> int:
    """Send a request with another one behind it. Check that one response ends the connection, and return its status."""
    with front.connect(request + SMUGGLED) as connection:
        status, _ = read_answer(connection)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1 << 16) == b""
    assert "/smuggled" not in asked(front)
    return status


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_request_with_two_lengths_is_refused_with_everything_after_it(front: TrivialFront, name: str) -> None:
    fields, body = AMBIGUOUS[name]
    request = b"POST /ambiguous HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n%s" % (fields, body)
    assert refused(front, request) == (501 if name == "unknown coding" else 400)


@pytest.mark.parametrize(
    "head",
    [
        b"POST / HTTP/1.1\nHost: x\nContent-Length: 0\n\n",
        b"POST / HTTP/1.1\r\nHost: x\nContent-Length: 0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\n\r\n",
        b"POST /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / a HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1 x\r\nHost: x\r\n\r\n",
        b"POST / HTTP/2.0\r\nHost: x\r\n\r\n",
        b"PO ST / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_malformed_head_is_refused(front: TrivialFront, head: bytes) -> None:
    assert refused(front, head) == 400


def test_consecutive_requests_are_each_answered(front: TrivialFront) -> None:
    """Without this, the tests above would prove nothing."""
    with front.connect(b"POST /first HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx" * 2) as connection:
        assert [read_answer(connection)[0] for _ in range(2)] == [200, 200]
    assert asked(front)[-2:] == ["/first", "/first"]
