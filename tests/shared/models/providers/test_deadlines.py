"""Slow upstreams and clients that left: each timeout ends the call in every state of the upstream."""

import itertools
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pytest
from urllib3.util import wait_for_read

from shared.models.providers.base import Event
from shared.models.providers.connections import GatheringResponse
from shared.models.providers.errors import CallCancelled, ProviderTimeout
from shared.models.providers.routing import Router
from tests.shared.models.providers.calls import FRAMINGS, NEVER, body, events_of, model, read, text_of
from tests.support.data.monotonic_clock import MonotonicClock, once
from tests.support.models.upstream_scripts import Script
from tests.support.models.upstreams import FakeUpstream
from tests.support.processes.stack import wait_until

WHOLE = (
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 22\r\n\r\n{                    }"
)
SILENT = Script(wait_seconds=3600)
MORE_THAN_SOCKETS_HOLD = 32 << 20
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
def test_plain_reply_has_only_a_deadline(
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
    """Never cancels, and counts the watchdog's checks. It checks after the limits, just before a call continues."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    def is_set(self) -> bool:
        """Return False."""
        self.times += 1
        return False

    def wait_for_two_more(self) -> None:
        """Wait until the watchdog has let the call continue with its present state."""
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


def test_no_timer_runs_between_loop_and_reader(
    router: Router, upstream: FakeUpstream, clock: MonotonicClock
) -> None:
    upstream.script = Script(delay_seconds=0.5)
    entry, looked = model(upstream.base_url, idle_timeout_seconds=10, deadline_seconds=900), Looked()
    with router.open(entry, lambda _: body(), cancelled=looked) as stream:
        batches = stream.batches()
        events = list(next(batches))
        with stream.polling() as socket_:
            assert select.select([socket_], [], [], 60)[0]
            events += stream.read_available() or ()
        clock.move(11)
        looked.wait_for_two_more()
        events += itertools.chain.from_iterable(batches)
    assert text_of(events) == "token token token "


def test_bytes_received_while_the_process_slept_are_read(
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


def test_call_cancelled_before_its_request_was_sent_costs_nothing(router: Router) -> None:
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


def test_deadline_after_the_end_does_not_cut_another_call(
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
