"""The stream loop: each stream in order, none delayed by another, every end in its call's own thread."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from shared.models.stream_loop import StreamLoop
from tests.support.processes.stack import wait_until

PATIENCE_SECONDS = 60
STREAMS = 20


class Turns:
    """Counts the turns of a loop."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def together(self) -> Iterator[None]:
        yield
        self.count += 1


class Stream:
    """A stream of bytes; ends at a full stop, and breaks at an exclamation mark."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.heard = b""
        self.threads: set[str] = set()

    def fileno(self) -> int:
        return self.ours.fileno()

    def step(self) -> bool:
        self.threads.add(threading.current_thread().name)
        self.heard += self.ours.recv(100, socket.MSG_DONTWAIT)
        if self.heard.endswith(b"!"):
            raise ValueError(self.heard)
        return not self.heard.endswith(b".")

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def turns() -> Turns:
    return Turns()


@pytest.fixture
def loop(turns: Turns) -> StreamLoop:
    return StreamLoop(turns.together)


@pytest.fixture
def streams() -> Iterator[list[Stream]]:
    made = [Stream() for _ in range(STREAMS)]
    yield made
    for each in made:
        each.close()


@pytest.fixture
def carried(loop: StreamLoop, streams: list[Stream]) -> Iterator[list[Future[None]]]:
    with ThreadPoolExecutor(STREAMS) as calls:
        yield [calls.submit(loop.pump, each, each.step) for each in streams]
        for each in streams:
            each.theirs.send(b".")


def test_every_stream_is_carried_in_order_until_it_wants_no_more(
    streams: list[Stream], carried: list[Future[None]]
) -> None:
    for number in range(100):
        for stream in streams:
            stream.theirs.sendall(b"%d," % number)
    for stream, future in zip(streams, carried, strict=True):
        stream.theirs.sendall(b".")
        future.result(PATIENCE_SECONDS)
        assert stream.heard == b"".join(b"%d," % number for number in range(100)) + b"."
        assert stream.threads == {"stream-loop"}


def test_streams_that_come_together_take_one_turn(
    streams: list[Stream], carried: list[Future[None]], turns: Turns
) -> None:
    for _ in range(50):
        for stream in streams:
            stream.theirs.sendall(b"x")
    wait_until(lambda: all(len(stream.heard) == 50 for stream in streams), "all was heard")
    assert turns.count < 50 * STREAMS / 4


def test_a_stream_that_breaks_is_its_calls_affair_and_no_others(
    streams: list[Stream], carried: list[Future[None]]
) -> None:
    streams[3].theirs.sendall(b"no!")
    with pytest.raises(ValueError, match="no!"):
        carried[3].result(PATIENCE_SECONDS)
    streams[4].theirs.sendall(b"yes")
    wait_until(lambda: streams[4].heard == b"yes", "the other goes on")
    assert not carried[4].done()


def test_returned_stream_can_be_pumped_again(loop: StreamLoop) -> None:
    stream = Stream()
    for said in (b"one.", b"two."):
        stream.theirs.sendall(said)
        loop.pump(stream, stream.step)
    assert stream.heard == b"one.two."
    stream.close()


def test_stream_with_a_closed_peer_is_polled(loop: StreamLoop) -> None:
    stream = Stream()
    stream.theirs.close()
    seen: list[bytes] = []

    def step() -> bool:
        seen.append(stream.ours.recv(100))
        return False

    loop.pump(stream, step)
    assert seen == [b""]
    stream.ours.close()


def test_call_is_informed_of_a_failed_batch_of_messages() -> None:
    @contextmanager
    def broken() -> Iterator[None]:
        yield
        raise RuntimeError("nothing can be sent")

    stream = Stream()
    stream.theirs.sendall(b"all.")
    StreamLoop(broken).pump(stream, stream.step)
    assert stream.heard == b"all."
    stream.close()
