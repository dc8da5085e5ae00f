"""When a request is whole, and who gives way, without any socket."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from web.server.request_reader import (
    LONGEST_HEAD_BYTES,
    SMALL_BODY_BYTES,
    Arrival,
    Limits,
    RequestReader,
    Stage,
)

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n%s\r\n"


def arrived(*pieces: bytes) -> Stage:
    arrival = Arrival(None, "192.0.2.1")
    for piece in pieces:
        arrival.take(piece)
    return arrival.stage


@given(st.integers(0, 300), st.lists(st.integers(1, 400), max_size=8))
def test_a_request_is_whole_with_its_last_byte_however_it_is_cut(size: int, cuts: list[int]) -> None:
    request = HEAD % b"Content-Length: %d\r\n" % size + b"\n" * size
    at = [0, *sorted({cut for cut in cuts if cut < len(request)}), len(request)]
    pieces = [request[begin:end] for begin, end in pairwise(at)]
    arrival = Arrival(None, "192.0.2.1")
    for piece in pieces[:-1]:
        arrival.take(piece)
        assert arrival.stage is not Stage.WHOLE
    arrival.take(pieces[-1])
    assert (arrival.stage, arrival.hand_over()) == (Stage.WHOLE, request)
    assert arrived(b"") is Stage.IDLE


def test_what_only_a_thread_can_read_is_whole_with_its_head() -> None:
    assert arrived(HEAD % b"Transfer-Encoding: chunked\r\n") is Stage.WHOLE
    assert arrived(HEAD % b"Expect: 100-continue\r\nContent-Length: 5\r\n") is Stage.WHOLE
    assert arrived(HEAD % b"Content-Length: %d\r\n" % (SMALL_BODY_BYTES + 1)) is Stage.WHOLE
    assert arrived(HEAD % b"Content-Length: %d\r\n" % SMALL_BODY_BYTES) is Stage.BODY
    assert arrived(HEAD % b"Content-Length: %s\r\n" % (b"9" * 5000)) is Stage.WHOLE


def test_a_head_that_gunicorn_refuses_at_once_is_not_waited_for() -> None:
    assert arrived(b"GET / HTTP/1.1\nHost") is Stage.WHOLE
    assert arrived(b"GET / HTTP/1.1\r", b"\nHost") is Stage.HEAD
    assert arrived(b"x" * (LONGEST_HEAD_BYTES + 1)) is Stage.OVERSIZED


def test_the_address_that_has_most_gives_way_with_its_oldest() -> None:
    arrivals = RequestReader(Limits(gathered_bytes=100))
    mine = [Arrival(None, "2001:db8::1"), Arrival(None, "2001:db8::2")]
    other = Arrival(None, "192.0.2.1")
    for arrival in (other, *mine):
        arrivals.add(arrival)
    assert arrivals.find_longest() is mine[0], "addresses of one network are one"
    assert arrivals.find_largest() is None
    arrivals.take(mine[1], b"x" * 10)
    arrivals.take(other, b"x" * 91)
    assert arrivals.is_too_much
    assert arrivals.find_largest() is other
    arrivals.remove(other)
    assert arrivals.find_largest() is mine[1]
    for arrival in mine:
        arrivals.remove(arrival)
    assert arrivals.find_longest() is None
    assert arrivals.find_largest() is None
