"""Slow upstreams and callers who left: each bound ends the call, whatever the upstream is doing."""

import contextlib
import errno
import itertools
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import IncompleteRead

import pytest
from urllib3.util import wait_for_read

from shared.models.providers.base import Event, UpstreamStream
from shared.models.providers.connections import GatheringResponse
from shared.models.providers.errors import CallCancelled, ProviderTimeout
from shared.models.providers.routing import Router
from tests.shared.models.providers.calls import NEVER, body, events_of, model, read, text_of, usage_of
from tests.shared.models.providers.conftest import set_by
from tests.support.monotonic_clock import MonotonicClock, once
from tests.support.stack import wait_until
from tests.support.upstream_scripts import Script
from tests.support.upstreams import FakeUpstream

FRAMINGS = pytest.mark.parametrize("framing", ["chunked", "close", "length"])
WHOLE = (
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 22\r\n\r\n{                    }"
)
SILENT = Script(wait_seconds=3600)
MORE_THAN_SOCKETS_HOLD = 32 << 20
MORE_PIECES_THAN_ONE_READ = 4000
HEADERS_THAT_DRIP = "HTTP/1.1 200 OK\r\n" + "X-Slow: yes\r\n" * 1000


def test_an_upstream_that_does_not_begin_in_time(
    router: Router, upstream: FakeUpstream, clock: MonotonicClock, sent: threading.Event
) -> None:
    upstream.script = SILENT
    with (
        once(lambda: sent.is_set() and upstream.received, lambda: clock.move(11)),
        pytest.raises(ProviderTimeout, match="did not begin") as raised,
    ):
        events_of(router, model(upstream.base_url, first_byte_timeout_seconds=10))
    assert raised.value.may_have_cost
    assert upstream.wait_for_end_of(1)[0].ended == "client left"


@pytest.mark.parametrize(
    "pausing",
    [
        lambda seconds: Script(wait_seconds=seconds),
        lambda seconds: Script(raw=WHOLE, drip_bytes=30, drip_seconds=seconds),
    ],
    ids=["before its head", "in its body"],
)
def test_a_whole_answer_is_bounded_by_its_deadline_alone(
    router: Router, upstream: FakeUpstream, clock: MonotonicClock, pausing: Callable[[float], Script]
) -> None:
    entry = model(
        upstream.base_url, first_byte_timeout_seconds=10, idle_timeout_seconds=10, deadline_seconds=100
    )
    upstream.script = pausing(0.5)
    with once(lambda: upstream.received, lambda: clock.move(50)):
        events_of(router, entry, stream=False)
    upstream.script = pausing(3600)
    with (
        once(lambda: len(upstream.received) == 2, lambda: clock.move(101)),
        pytest.raises(ProviderTimeout, match="did not finish"),
    ):
        events_of(router, entry, stream=False)


def test_headers_that_drip_do_not_count_as_a_beginning(
    router: Router, upstream: FakeUpstream, clock: MonotonicClock
) -> None:
    upstream.script = Script(raw=HEADERS_THAT_DRIP, drip_bytes=1, drip_seconds=0.02)

    def let_some_drip() -> None:
        for _ in range(4):
            time.sleep(0.1)
            clock.move(3)

    with (
        once(lambda: upstream.received, let_some_drip),
        pytest.raises(ProviderTimeout, match="did not begin"),
    ):
        events_of(router, model(upstream.base_url, first_byte_timeout_seconds=10, idle_timeout_seconds=10))


def test_an_upstream_that_falls_silent(
    router: Router, upstream: FakeUpstream, clock: MonotonicClock, listening: threading.Event
) -> None:
    upstream.script = Script(stall_after=2)
    events: list[Event] = []
    with (
        router.open(
            model(upstream.base_url, idle_timeout_seconds=10), lambda _: body(), cancelled=NEVER
        ) as stream,
        once(lambda: waits_after(events, "token token ", listening), lambda: clock.move(11)),
        pytest.raises(ProviderTimeout, match="stopped in the middle") as raised,
    ):
        read(stream, events, before_each=listening.clear)
    assert text_of(events) == "token token "
    assert raised.value.may_have_cost


def waits_after(events: list[Event], text: str, listening: threading.Event) -> bool:
    """Whether a reader has all of a text, and waits for more."""
    return text_of(events) == text and listening.is_set()


class Looked(threading.Event):
    """Never cancels, and counts how often the watchdog asked for that: after the bounds, when it lets a call go on."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    def is_set(self) -> bool:
        """Say no."""
        self.times += 1
        return False

    def wait_for_two_more(self) -> None:
        """Wait until the watchdog has let the call go on by what it knows now."""
        before = self.times
        wait_until(lambda: self.times >= before + 2, "the watchdog lets the call go on", seconds=10)


@FRAMINGS
def test_a_reader_that_is_busy_elsewhere_is_not_the_upstreams_silence(
    router: Router, upstream: FakeUpstream, clock: MonotonicClock, framing: str
) -> None:
    upstream.script = Script(delay_seconds=0.05, framing=framing)  # type: ignore[arg-type]
    entry, looked = model(upstream.base_url, idle_timeout_seconds=10, deadline_seconds=900), Looked()
    events: list[Event] = []
    with router.open(entry, lambda _: body(), cancelled=looked) as stream:
        for event in stream:
            events.append(event)
            clock.move(11)
            looked.wait_for_two_more()
    assert text_of(events) == "token token token "


def test_between_a_loop_and_a_reader_nobody_waits_for_the_upstream(
    router: Router, upstream: FakeUpstream, clock: MonotonicClock
) -> None:
    upstream.script = Script(delay_seconds=0.5)
    entry, looked = model(upstream.base_url, idle_timeout_seconds=10, deadline_seconds=900), Looked()
    with router.open(entry, lambda _: body(), cancelled=looked) as stream:
        batches = stream.batches()
        events = list(next(batches))
        with stream.flow() as arrivals:
            assert select.select([arrivals], [], [], 60)[0]
            events += stream.take() or ()
        clock.move(11)
        looked.wait_for_two_more()
        events += itertools.chain.from_iterable(batches)
    assert text_of(events) == "token token token "


def test_what_came_while_the_process_slept_is_read(
    router: Router, upstream: FakeUpstream, clock: MonotonicClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Afterwards its clock has gone on, and the watchdog may look before the reader reads."""
    looked = Looked()
    read1 = GatheringResponse.read1

    def read_after_sleeping(response: GatheringResponse, n: int = -1) -> bytes:
        monkeypatch.setattr(GatheringResponse, "read1", read1)
        assert wait_for_read(response._socket, 60)
        clock.move(11)
        looked.wait_for_two_more()
        return read1(response, n)

    monkeypatch.setattr(GatheringResponse, "read1", read_after_sleeping)
    upstream.script = Script(delay_seconds=0.05)
    entry = model(upstream.base_url, idle_timeout_seconds=10, deadline_seconds=900)
    assert text_of(events_of(router, entry, cancelled=looked)) == "token token token "


def test_a_head_that_came_while_the_process_slept_is_read(
    router: Router, upstream: FakeUpstream, clock: MonotonicClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = Looked()
    begin = GatheringResponse.begin

    def begin_after_sleeping(response: GatheringResponse) -> None:
        assert wait_for_read(response._socket, 60)
        clock.move(11)
        looked.wait_for_two_more()
        begin(response)

    monkeypatch.setattr(GatheringResponse, "begin", begin_after_sleeping)
    entry = model(upstream.base_url, first_byte_timeout_seconds=10, deadline_seconds=900)
    assert text_of(events_of(router, entry, cancelled=looked)) == "token token token "


def test_an_answer_that_had_come_whole_before_the_call_was_cancelled_is_read(
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
def test_what_had_come_before_the_call_was_cut_is_read(
    router: Router,
    upstream: FakeUpstream,
    clock: MonotonicClock,
    monkeypatch: pytest.MonkeyPatch,
    framing: str,
    is_cancelled: bool,
) -> None:
    """It was delivered, and its end says what it cost."""
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


@pytest.fixture
def cancelled_once_answered(
    upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> tuple[threading.Event, Callable[[], None]]:
    """What cancels a call, and how to wait until its whole answer has come, cancel it, and see it cut."""
    cut, cancelled = set_by("_end", monkeypatch), threading.Event()

    def cancel() -> None:
        assert upstream.wait_for_end_of(1)[0].ended == "answered"
        cancelled.set()
        assert cut.wait(10)

    return cancelled, cancel


IN_PIECES = 0.02
"""Seconds between the parts of an answer, so that a reader has only the first of them when it has read once."""


@FRAMINGS
def test_what_comes_while_an_earlier_part_is_read_is_read_too(
    router: Router,
    upstream: FakeUpstream,
    cancelled_once_answered: tuple[threading.Event, Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
    framing: str,
) -> None:
    cancelled, cancel = cancelled_once_answered
    read1 = GatheringResponse.read1

    def read_before_the_cut(response: GatheringResponse, n: int = -1) -> bytes:
        monkeypatch.setattr(GatheringResponse, "read1", read1)
        received = read1(response, n)
        assert received.count(b"token") < 3
        cancel()
        return received

    monkeypatch.setattr(GatheringResponse, "read1", read_before_the_cut)
    upstream.script = Script(delay_seconds=IN_PIECES, framing=framing)  # type: ignore[arg-type]
    events = events_of(router, model(upstream.base_url), cancelled=cancelled)
    assert text_of(events) == "token token token "
    assert usage_of(events)


@FRAMINGS
def test_what_comes_after_the_head_is_read_too(
    router: Router,
    upstream: FakeUpstream,
    cancelled_once_answered: tuple[threading.Event, Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
    framing: str,
) -> None:
    """The head was read with the first part of the body; the rest waits in the socket."""
    cancelled, cancel = cancelled_once_answered
    begin = GatheringResponse.begin

    def begin_before_the_cut(response: GatheringResponse) -> None:
        begin(response)
        cancel()

    monkeypatch.setattr(GatheringResponse, "begin", begin_before_the_cut)
    upstream.script = Script(delay_seconds=IN_PIECES, framing=framing)  # type: ignore[arg-type]
    events = events_of(router, model(upstream.base_url), cancelled=cancelled)
    assert text_of(events) == "token token token "
    assert usage_of(events)


@FRAMINGS
def test_a_document_that_had_come_whole_before_the_call_was_cut_is_read(
    router: Router,
    upstream: FakeUpstream,
    cancelled_once_answered: tuple[threading.Event, Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
    framing: str,
) -> None:
    cancelled, cancel = cancelled_once_answered
    begin = GatheringResponse.begin

    def begin_before_the_cut(response: GatheringResponse) -> None:
        begin(response)
        cancel()

    monkeypatch.setattr(GatheringResponse, "begin", begin_before_the_cut)
    upstream.script = Script(framing=framing, chunks=MORE_PIECES_THAN_ONE_READ)  # type: ignore[arg-type]
    (document,) = events_of(router, model(upstream.base_url), cancelled=cancelled, stream=False)
    assert document["usage"]


@FRAMINGS
def test_a_document_of_which_a_part_had_come_when_the_call_was_cut_is_none(
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
    """What this machine takes of a report that nobody reads is charged to nobody."""
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


def test_an_upstream_that_waits_for_room_hears_at_once_that_it_was_hung_up_on(router: Router) -> None:
    """Else it would hear when it asks for room again, which it does ever more rarely."""

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
    with stream.flow() as arrivals:
        taken = 0
        while select.select([arrivals], [], [], 10)[0] and stream.take() is not None:
            taken += 1
    assert taken <= 1
    with pytest.raises(ProviderTimeout):
        list(batches)


@FRAMINGS
def test_an_upstream_that_drips_past_the_deadline(
    router: Router, upstream: FakeUpstream, clock: MonotonicClock, framing: str
) -> None:
    upstream.script = Script(drip_bytes=5, drip_seconds=0.02, chunks=100, framing=framing)  # type: ignore[arg-type]
    with (
        once(lambda: upstream.received, lambda: clock.move(11)),
        pytest.raises(ProviderTimeout, match="did not finish"),
    ):
        events_of(router, model(upstream.base_url, deadline_seconds=10))


def test_the_callers_deadline_can_be_the_shorter_one(
    router: Router, upstream: FakeUpstream, clock: MonotonicClock
) -> None:
    upstream.script = SILENT
    ends_at = clock.monotonic() + 10
    with (
        once(lambda: upstream.received, lambda: clock.move(11)),
        pytest.raises(ProviderTimeout, match="did not finish"),
    ):
        router.open(model(upstream.base_url), lambda _: body(), cancelled=NEVER, deadline_at=ends_at)


def test_cancelling_before_the_first_byte_hangs_up(
    router: Router, upstream: FakeUpstream, sent: threading.Event
) -> None:
    upstream.script = SILENT
    with pytest.raises(CallCancelled) as raised:
        events_of(router, model(upstream.base_url), cancelled=sent)
    assert raised.value.may_have_cost
    assert upstream.wait_for_end_of(1)[0].ended == "client left"


def test_a_call_that_is_cancelled_before_its_request_has_left_has_cost_nothing(router: Router) -> None:
    cancelled = threading.Event()
    timer = threading.Timer(0.2, cancelled.set)
    with socket.create_server(("127.0.0.1", 0)) as reading_nothing:
        timer.start()
        entry = model(f"http://127.0.0.1:{reading_nothing.getsockname()[1]}/v1")
        with pytest.raises(CallCancelled) as raised:
            events_of(router, entry, "x" * MORE_THAN_SOCKETS_HOLD, cancelled=cancelled)
    assert not raised.value.may_have_cost
    timer.join()


def cancelling_at_first_text(stream: Iterable[Event], cancelled: threading.Event) -> Iterator[Event]:
    """Cancel a moment after text has come, while nothing more comes."""
    for event in stream:
        yield event
        if text_of([event]):
            threading.Timer(0.2, cancelled.set).start()


def test_cancelling_a_silent_stream_hangs_up(router: Router, upstream: FakeUpstream) -> None:
    upstream.script = Script(stall_after=1)
    cancelled = threading.Event()
    events: list[Event] = []
    with (
        router.open(model(upstream.base_url), lambda _: body(), cancelled=cancelled) as stream,
        pytest.raises(CallCancelled) as raised,
    ):
        events.extend(cancelling_at_first_text(stream, cancelled))
    assert text_of(events) == "token "
    assert raised.value.may_have_cost


def test_a_call_that_is_cancelled_already_is_never_made(router: Router, upstream: FakeUpstream) -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(CallCancelled) as raised:
        events_of(router, model(upstream.base_url), cancelled=cancelled)
    assert not raised.value.may_have_cost
    assert not upstream.received


def test_a_deadline_that_passes_after_the_end_cuts_nobody_elses_call(
    router: Router, upstream: FakeUpstream, clock: MonotonicClock
) -> None:
    long = partial(model, upstream.base_url, first_byte_timeout_seconds=60, idle_timeout_seconds=60)
    with router.open(long(deadline_seconds=10), lambda _: body(), cancelled=NEVER) as ended:
        assert len(list(ended)) == 6
        upstream.script = Script(chunks=50, delay_seconds=0.01)
        with once(lambda: len(upstream.received) == 2, lambda: clock.move(11)):
            assert text_of(events_of(router, long(deadline_seconds=60))) == "token " * 50


def test_many_calls_are_watched_at_once(
    router: Router, upstream: FakeUpstream, clock: MonotonicClock
) -> None:
    upstream.script = SILENT
    entry = model(upstream.base_url, first_byte_timeout_seconds=10)
    outcomes: list[str] = []

    def call() -> None:
        try:
            events_of(router, entry)
        except ProviderTimeout as error:
            outcomes.append(error.code)

    threads = [threading.Thread(target=call) for _ in range(20)]
    with once(lambda: len(upstream.received) == 20, lambda: clock.move(11)):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert outcomes == ["provider_timeout"] * 20
