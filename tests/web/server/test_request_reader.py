"""When a request is complete, and which one is evicted, tested without sockets."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from web.server.request_reader import (
    LONGEST_HEAD_BYTES,
    SMALL_BODY_BYTES,
    IncomingRequest,
    Limits,
    RequestReader,
    Stage,
)

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n%s\r\n"


def arrived(*pieces: bytes) -> Stage:
    incoming = IncomingRequest(None, "192.0.2.1")
    for piece in pieces:
        incoming.receive(piece)
    return incoming.stage


@given(st.integers(0, 300), st.lists(st.integers(1, 400), max_size=8))
def test_a_request_is_whole_with_its_last_byte_however_it_is_cut(size: int, cuts: list[int]) -> None:
    request = HEAD % b"Content-Length: %d\r\n" % size + b"\n" * size
    at = [0, *sorted({cut for cut in cuts if cut < len(request)}), len(request)]
    pieces = [request[begin:end] for begin, end in pairwise(at)]
    incoming = IncomingRequest(None, "192.0.2.1")
    for piece in pieces[:-1]:
        incoming.receive(piece)
        assert incoming.stage is not Stage.COMPLETE
    incoming.receive(pieces[-1])
    assert (incoming.stage, incoming.take_all()) == (Stage.COMPLETE, request)
    assert arrived(b"") is Stage.IDLE


def test_request_for_a_thread_is_complete_with_its_head() -> None:
    assert arrived(HEAD % b"Transfer-Encoding: chunked\r\n") is Stage.COMPLETE
    assert arrived(HEAD % b"Expect: 100-continue\r\nContent-Length: 5\r\n") is Stage.COMPLETE
    assert arrived(HEAD % b"Content-Length: %d\r\n" % (SMALL_BODY_BYTES + 1)) is Stage.COMPLETE
    assert arrived(HEAD % b"Content-Length: %d\r\n" % SMALL_BODY_BYTES) is Stage.BODY
    assert arrived(HEAD % b"Content-Length: %s\r\n" % (b"9" * 5000)) is Stage.COMPLETE


def test_a_head_that_gunicorn_refuses_at_once_is_not_waited_for() -> None:
    assert arrived(b"GET / HTTP/1.1\nHost") is Stage.COMPLETE
    assert arrived(b"GET / HTTP/1.1\r", b"\nHost") is Stage.HEAD
    assert arrived(b"x" * (LONGEST_HEAD_BYTES + 1)) is Stage.OVERSIZED


def test_oldest_request_of_the_busiest_address_is_evicted() -> None:
    reader = RequestReader(Limits(gathered_bytes=100))
    mine = [IncomingRequest(None, "2001:db8::1"), IncomingRequest(None, "2001:db8::2")]
    other = IncomingRequest(None, "192.0.2.1")
    for incoming in (other, *mine):
        reader.add(incoming)
    assert reader.find_victim_by_connections() is mine[0], "addresses of one network are one"
    assert reader.find_victim_by_bytes() is None
    reader.receive(mine[1], b"x" * 10)
    reader.receive(other, b"x" * 91)
    assert reader.is_over_limit
    assert reader.find_victim_by_bytes() is other
    reader.remove(other)
    assert reader.find_victim_by_bytes() is mine[1]
    for incoming in mine:
        reader.remove(incoming)
    assert reader.find_victim_by_connections() is None
    assert reader.find_victim_by_bytes() is None
