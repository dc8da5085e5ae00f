"""Aborted calls: all bytes that had arrived are read, and none arrive later."""

import contextlib
import errno
import select
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import IncompleteRead

import pytest
from urllib3.util import wait_for_read

from shared.models.providers.base import UpstreamStream
from shared.models.providers.connections import GatheringResponse
from shared.models.providers.errors import CallCancelled, ProviderTimeout
from shared.models.providers.routing import Router
from tests.shared.models.providers.calls import FRAMINGS, NEVER, body, events_of, model, text_of, usage_of
from tests.shared.models.providers.conftest import set_by
from tests.support.data.monotonic_clock import MonotonicClock
from tests.support.models.upstream_scripts import Script
from tests.support.models.upstreams import FakeUpstream
from tests.support.processes.stack import wait_until

MORE_PIECES_THAN_ONE_READ = 4000


def test_complete_response_before_a_cancellation_is_read(
    router: Router, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut, cancelled = set_by("_end", monkeypatch), threading.Event()
    begin = GatheringResponse.begin

    def begin_after_the_cut(response: GatheringResponse) -> None:
        assert wait_for_read(response._socket, 10)
        cancelled.set()
        assert cut.wait(10)
        begin(response)

    monkeypatch.setattr(GatheringResponse, "begin", begin_after_the_cut)
    assert text_of(events_of(router, model(upstream.base_url), cancelled=cancelled)) == "token token token "


@pytest.mark.parametrize("is_cancelled", [True, False], ids=["cancelled", "past its deadline"])
@FRAMINGS
def test_bytes_received_before_a_cut_are_read(
    router: Router,
    upstream: FakeUpstream,
    clock: MonotonicClock,
    monkeypatch: pytest.MonkeyPatch,
    framing: str,
    is_cancelled: bool,
) -> None:
    """The reply was delivered, and its end contains the usage."""
    cut, cancelled = set_by("_end", monkeypatch), threading.Event()
    read1 = GatheringResponse.read1

    def read_after_the_cut(response: GatheringResponse, n: int = -1) -> bytes:
        monkeypatch.setattr(GatheringResponse, "read1", read1)
        assert wait_for_read(response._socket, 10)
        if is_cancelled:
            cancelled.set()
        else:
            clock.move(901)
        assert cut.wait(10)
        return read1(response, n)

    upstream.script = Script(delay_seconds=0.05, framing=framing)  # type: ignore[arg-type]
    entry = model(upstream.base_url, deadline_seconds=900)
    monkeypatch.setattr(GatheringResponse, "read1", read_after_the_cut)
    with router.open(entry, lambda _: body(), cancelled=cancelled) as stream:
        batches = stream.batches()
        assert next(batches)
        with pytest.raises(CallCancelled if is_cancelled else ProviderTimeout):
            list(batches)


CutAfter = Callable[[str], threading.Event]


@pytest.fixture
def cut_after(upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch) -> CutAfter:
    """Arrange that a call is cancelled, and cut, once its whole answer has come after one run of a response's method.

    Gives what cancels the call.
    """
    cut, cancelled = set_by("_end", monkeypatch), threading.Event()

    def arrange(name: str) -> threading.Event:
        method = getattr(GatheringResponse, name)

        def run_and_cut(response: GatheringResponse, *arguments: int) -> bytes | None:
            monkeypatch.setattr(GatheringResponse, name, method)
            received: bytes | None = method(response, *arguments)
            assert (received or b"").count(b"token") < 3
            assert upstream.wait_for_end_of(1)[0].ended == "answered"
            cancelled.set()
            assert cut.wait(10)
            return received

        monkeypatch.setattr(GatheringResponse, name, run_and_cut)
        return cancelled

    return arrange


IN_PIECES = 0.02
"""Seconds between the parts of a response, so that the first read returns only the first part."""


@pytest.mark.parametrize("read_with", ["begin", "read1"], ids=["after the head", "after a part"])
@FRAMINGS
def test_received_bytes_after_a_partial_read_are_read_too(
    router: Router, upstream: FakeUpstream, cut_after: CutAfter, framing: str, read_with: str
) -> None:
    """Whether the first part was read with the head, or by itself: the rest waits in the socket."""
    upstream.script = Script(delay_seconds=IN_PIECES, framing=framing)  # type: ignore[arg-type]
    events = events_of(router, model(upstream.base_url), cancelled=cut_after(read_with))
    assert text_of(events) == "token token token "
    assert usage_of(events)


@FRAMINGS
def test_complete_document_before_a_cut_is_read(
    router: Router, upstream: FakeUpstream, cut_after: CutAfter, framing: str
) -> None:
    upstream.script = Script(framing=framing, chunks=MORE_PIECES_THAN_ONE_READ)  # type: ignore[arg-type]
    (document,) = events_of(router, model(upstream.base_url), cancelled=cut_after("begin"), stream=False)
    assert document["usage"]


@FRAMINGS
def test_document_cut_in_the_middle_is_not_returned(
    router: Router, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch, framing: str
) -> None:
    cancelled = threading.Event()
    read1 = GatheringResponse.read1

    def read_and_cancel(response: GatheringResponse, n: int = -1) -> bytes:
        received = read1(response, n)
        cancelled.set()
        return received

    monkeypatch.setattr(GatheringResponse, "read1", read_and_cancel)
    upstream.script = Script(framing=framing, drip_bytes=200, drip_seconds=0.5)  # type: ignore[arg-type]
    with pytest.raises(CallCancelled) as raised:
        events_of(router, model(upstream.base_url), cancelled=cancelled, stream=False)
    assert raised.value.may_have_cost


@FRAMINGS
def test_nothing_arrives_any_more_once_a_call_was_cut(
    router: Router, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch, framing: str
) -> None:
    """Otherwise the kernel could accept a report that is never read, and so never charged."""
    cancelled = threading.Event()
    read1 = GatheringResponse.read1

    def read_and_close_late(response: GatheringResponse, n: int = -1) -> bytes:
        try:
            received = read1(response, n)
        except IncompleteRead:
            upstream.wait_for_end_of(1)
            raise
        if not received:
            upstream.wait_for_end_of(1)
        return received

    monkeypatch.setattr(GatheringResponse, "read1", read_and_close_late)
    upstream.script = Script(delay_seconds=0.1, framing=framing)  # type: ignore[arg-type]
    with router.open(model(upstream.base_url), lambda _: body(), cancelled=cancelled) as stream:
        batches = stream.batches()
        next(batches)
        cancelled.set()
        with pytest.raises(CallCancelled):
            list(batches)
    wait_until(lambda: not upstream.is_connected, "the upstream sees that it was hung up on")
    assert not upstream.served[0].is_reported


def test_upstream_with_a_full_send_window_notices_a_hang_up_at_once(router: Router) -> None:
    """Otherwise it would notice only when it checks for a free window, which it does ever more rarely."""

    def answer_until_there_is_no_room(server: socket.socket) -> socket.socket:
        connection, _ = server.accept()
        connection.recv(64 << 10)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        connection.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                connection.send(b'data: {"choices": []}\n\n' * 1000)
        return connection

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        answering = pool.submit(answer_until_there_is_no_room, server)
        entry = model(f"http://127.0.0.1:{server.getsockname()[1]}/v1")
        with router.open(entry, lambda _: body(), cancelled=NEVER) as stream:
            connection = answering.result()
            batches = stream.batches()
            next(batches)
            stream.hang_up()
            with pytest.raises(CallCancelled):
                list(batches)
        with connection:
            # A connection that had ended, and was reset then.
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.EPIPE


@pytest.fixture(params=["chunked", "close", "length"])
def cut_while_sending(
    router: Router,
    upstream: FakeUpstream,
    clock: MonotonicClock,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[tuple[UpstreamStream, Iterator[object]]]:
    """A stream of an upstream that never pauses, and what is read of it, when it has just been cut at its deadline."""
    cut = set_by("_end", monkeypatch)
    upstream.script = Script(chunks=2000, pad_bytes=16 << 10, framing=request.param)
    entry = model(upstream.base_url, deadline_seconds=900)
    with router.open(entry, lambda _: body(), cancelled=NEVER) as stream:
        batches = stream.batches()
        next(batches)
        clock.move(901)
        assert cut.wait(10)
        yield stream, batches


def test_an_upstream_that_never_pauses_is_cut_too(
    cut_while_sending: tuple[UpstreamStream, Iterator[object]],
) -> None:
    _, batches = cut_while_sending
    with pytest.raises(ProviderTimeout):
        list(batches)


def test_a_loop_takes_no_more_of_an_upstream_that_never_pauses(
    cut_while_sending: tuple[UpstreamStream, Iterator[object]],
) -> None:
    stream, batches = cut_while_sending
    with stream.polling() as socket_:
        taken = 0
        while select.select([socket_], [], [], 10)[0] and stream.read_available() is not None:
            taken += 1
    assert taken <= 1
    with pytest.raises(ProviderTimeout):
        list(batches)
