"""Gathering chunks: a read returns all bytes that have arrived, without waiting or loss, at any split."""

import socket
from collections.abc import Iterator
from http.client import IncompleteRead

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.models.providers.connections import ChunkDecoder, GatheringResponse

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    ours.settimeout(60)
    yield ours, theirs
    ours.close()
    theirs.close()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def begun(ours: socket.socket) -> GatheringResponse:
    response = GatheringResponse(ours, method="POST")
    response.begin()
    return response


def test_all_chunks_that_are_there_come_at_once(pair: Pair) -> None:
    ours, theirs = pair
    theirs.sendall(HEAD + b"".join(chunk(b"%d " % number) for number in range(20)))
    response = begun(ours)
    assert response.read1() == b"".join(b"%d " % number for number in range(20))
    response.close()


@pytest.mark.parametrize("rest", [b"", b"5", b"5\r\n", b"5\r\nlat", b"5\r\nlater"])
def test_an_unfinished_chunk_holds_nothing_back(pair: Pair, rest: bytes) -> None:
    ours, theirs = pair
    theirs.sendall(HEAD + chunk(b"now ") + rest)
    response = begun(ours)
    received = response.read1()
    assert received in (b"now ", b"now " + rest.partition(b"\r\n")[2])
    theirs.sendall((chunk(b"later") + b"0\r\n\r\n")[len(rest) :])
    while piece := response.read1():
        received += piece
    assert received == b"now later"
    assert response.isclosed()


def test_end_is_reported_after_earlier_data(pair: Pair) -> None:
    ours, theirs = pair
    theirs.sendall(HEAD + chunk(b"all") + b"0\r\n\r\n")
    response = begun(ours)
    assert response.read1() == b"all"
    assert response.read1() == b""


@pytest.mark.parametrize("rest", [b"zz\r\nxx", b"5\r\nab"])
def test_break_is_reported_after_earlier_data(pair: Pair, rest: bytes) -> None:
    ours, theirs = pair
    theirs.sendall(HEAD + chunk(b"all") + rest)
    theirs.shutdown(socket.SHUT_WR)
    response = begun(ours)
    received = response.read1()
    while received == b"all" and rest.startswith(b"5"):
        received += response.read1()
    with pytest.raises(Exception, match=r"IncompleteRead"):
        response.read1()
    response.close()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(min_size=1, max_size=30), max_size=10), st.data())
def test_nothing_is_lost_however_it_is_cut(chunks: list[bytes], data: st.DataObject) -> None:
    stream = HEAD + b"".join(map(chunk, chunks)) + b"0\r\n\r\n"
    cut = data.draw(st.integers(len(HEAD), len(stream)))
    ours, theirs = socket.socketpair()
    ours.settimeout(60)
    with ours, theirs:
        theirs.sendall(stream[:cut])
        response = begun(ours)
        received = b""
        if cut > len(HEAD) + len(chunk(chunks[0]) if chunks else stream):
            received = response.read1()
        theirs.sendall(stream[cut:])
        while piece := response.read1():
            received += piece
        response.close()
    assert received == b"".join(chunks)


def test_received_data_is_read_without_waiting(pair: Pair) -> None:
    ours, theirs = pair
    theirs.sendall(HEAD + chunk(b"first "))
    response = begun(ours)
    assert response.read1() == b"first "
    with response.non_blocking():
        assert response.read_available() is None
        theirs.sendall(chunk(b"second ") + chunk(b"third ") + b"7\r\nfou")
        assert response.read_available() == b"second third fou"
        theirs.sendall(b"rth \r\n")
        assert response.read_available() == b"rth "
    assert ours.gettimeout() == 60
    theirs.sendall(chunk(b"last") + b"0\r\n\r\n")
    assert [response.read1(), response.read1()] == [b"last", b""]
    assert response.isclosed()


@pytest.mark.parametrize("rest", [b"0\r\n\r\n", b"zz\r\nxx", None])
def test_end_or_break_found_by_polling_is_reported_by_the_next_read(pair: Pair, rest: bytes | None) -> None:
    ours, theirs = pair
    theirs.sendall(HEAD + chunk(b"first "))
    response = begun(ours)
    assert response.read1() == b"first "
    theirs.sendall(chunk(b"second ") + (rest or b""))
    if rest is None:
        theirs.shutdown(socket.SHUT_WR)
    with response.non_blocking():
        assert response.read_available() == b"second "
        assert rest is None or not response.is_pollable
        assert rest is not None or response.read_available() is None
    if rest == b"0\r\n\r\n":
        assert response.read1() == b""
    else:
        with pytest.raises(IncompleteRead):
            response.read1()
    response.close()


@pytest.mark.parametrize(
    "framed",
    [
        b"3\r\nabc\r\n0\r\n\r\n",
        b"3;name=value\r\nabc\r\n0\r\n\r\n",
        b"003\r\nabc\r\n000\r\nTrailer: x\r\nOther: y\r\n\r\n",
        b"1 \r\na\r\n2\t;x\r\nbc\r\n0\r\n\r\n",
        b"3\nabc\n0\n\n",
    ],
)
def test_framing_is_undone_wherever_it_is_cut(framed: bytes) -> None:
    for size in range(1, len(framed) + 1):
        decoder = ChunkDecoder()
        pieces = [decoder.feed(framed[at : at + size]) for at in range(0, len(framed), size)]
        assert (b"".join(pieces), decoder.is_over, decoder.is_broken) == (b"abc", True, False)


@pytest.mark.parametrize(
    ("framed", "whole"),
    [
        (b"-3\r\nabc", b""),
        (b"0x3\r\nabc", b""),
        (b"1_0\r\nabc", b""),
        (b"\r\nabc", b""),
        (b"3\r\nabcd\r\n0\r\n\r\n", b"abc"),
        (b"ffffffffffffffff\r\nabc", b""),
        (b"5" * 70_000, b""),
        (b"0\r\n" + b"x" * 70_000, b""),
    ],
)
def test_broken_framing_is_seen(framed: bytes, whole: bytes) -> None:
    decoder = ChunkDecoder()
    assert decoder.feed(framed) == whole
    assert decoder.is_broken
    assert decoder.feed(b"3\r\nabc\r\n") == b""
