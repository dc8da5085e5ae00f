"""Gathering chunks: everything that has arrived, no waiting, nothing lost, over plain sockets and wherever cut."""

import socket
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.models.providers.connections import GatheringResponse

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    ours.settimeout(10)
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


def test_the_end_is_told_after_what_came_before_it(pair: Pair) -> None:
    ours, theirs = pair
    theirs.sendall(HEAD + chunk(b"all") + b"0\r\n\r\n")
    response = begun(ours)
    assert response.read1() == b"all"
    assert response.read1() == b""


@pytest.mark.parametrize("rest", [b"zz\r\nxx", b"5\r\nab"])
def test_a_break_is_told_after_what_came_before_it(pair: Pair, rest: bytes) -> None:
    ours, theirs = pair
    theirs.sendall(HEAD + chunk(b"all") + rest)
    theirs.shutdown(socket.SHUT_WR)
    response = begun(ours)
    received = response.read1()
    while received == b"all" and rest.startswith(b"5"):
        received += response.read1()
    with pytest.raises(Exception, match=r"IncompleteRead|invalid literal"):
        response.read1()
    response.close()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(min_size=1, max_size=30), max_size=10), st.data())
def test_nothing_is_lost_however_it_is_cut(chunks: list[bytes], data: st.DataObject) -> None:
    stream = HEAD + b"".join(map(chunk, chunks)) + b"0\r\n\r\n"
    cut = data.draw(st.integers(len(HEAD), len(stream)))
    ours, theirs = socket.socketpair()
    ours.settimeout(10)
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
