"""Fallback and retries: the next upstream at once, another round after a wait, none after a possible cost."""

import socket
import threading
from collections.abc import Iterator

import pytest

from shared.models.catalog import Upstream
from shared.models.providers import routing
from shared.models.providers.base import Event
from shared.models.providers.errors import (
    CallCancelled,
    ProviderError,
    ProviderOverloaded,
    ProviderTimeout,
    UpstreamRefused,
)
from shared.models.providers.routing import Router
from tests.shared.models.providers.calls import NEVER, body, events_of, model, text_of
from tests.support.data.monotonic_clock import MonotonicClock, once
from tests.support.models.upstream_scripts import Script
from tests.support.models.upstreams import FakeUpstream

OVERLOADED = Script(status=429, body="later", headers={"Retry-After": "0"})


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "FIRST_WAIT_SECONDS", 0.01)


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address without a server."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/v1"


def test_an_upstream_that_cannot_be_reached_is_passed_over(
    router: Router, upstream: FakeUpstream, nobody: str
) -> None:
    with router.open(model(nobody, upstream.base_url), lambda _: body(), cancelled=NEVER) as stream:
        assert stream.upstream.model == "m1"
        assert text_of(list(stream)) == "token token token "


def test_each_upstream_gets_a_body_of_its_own(router: Router, upstream: FakeUpstream, nobody: str) -> None:
    def body_for(asked: Upstream) -> Event:
        return body(model=asked.model)

    with router.open(model(nobody, upstream.base_url), body_for, cancelled=NEVER, call_id="call-7") as stream:
        list(stream)
    [received] = upstream.received
    assert received.body["model"] == "m1"
    assert received.headers["x-client-request-id"] == "call-7"
    assert upstream.served[0].call == "call-7"


@pytest.mark.parametrize("status", [429, 503, 401, 404, 302, 408])
def test_free_failure_falls_back_to_the_next_upstream(
    router: Router, upstream: FakeUpstream, other_upstream: FakeUpstream, status: int
) -> None:
    upstream.script = Script(status=status, body="no")
    assert events_of(router, model(upstream.base_url, other_upstream.base_url))
    assert len(upstream.received) == len(other_upstream.received) == 1


@pytest.mark.parametrize(
    "script",
    [
        Script(status=500, body="no"),
        Script(status=502, body="no"),
        Script(raw="HTTP/1.1 200 OK\r\nContent-"),
        Script(raw="nonsense\r\n\r\n"),
    ],
    ids=["500", "502", "cut headers", "not HTTP"],
)
def test_call_that_may_have_cost_is_never_repeated(
    router: Router, upstream: FakeUpstream, other_upstream: FakeUpstream, script: Script
) -> None:
    upstream.script = script
    with pytest.raises(ProviderError) as raised:
        events_of(router, model(upstream.base_url, other_upstream.base_url))
    assert raised.value.may_have_cost
    assert len(upstream.received) == 1
    assert not other_upstream.received


def test_a_silence_may_have_cost_and_is_never_repeated(
    router: Router,
    upstream: FakeUpstream,
    other_upstream: FakeUpstream,
    clock: MonotonicClock,
    sent: threading.Event,
) -> None:
    upstream.script = Script(wait_seconds=3600)
    entry = model(upstream.base_url, other_upstream.base_url, first_byte_timeout_seconds=10)
    with (
        once(lambda: sent.is_set() and upstream.received, lambda: clock.move(11)),
        pytest.raises(ProviderTimeout) as raised,
    ):
        events_of(router, entry)
    assert raised.value.may_have_cost
    assert len(upstream.received) == 1
    assert not other_upstream.received


def test_call_with_a_begun_response_is_never_repeated(
    router: Router, upstream: FakeUpstream, other_upstream: FakeUpstream
) -> None:
    upstream.script = Script(reset_after=0)
    with pytest.raises(ProviderError):
        events_of(router, model(upstream.base_url, other_upstream.base_url))
    assert not other_upstream.received


def test_a_wrong_request_is_not_tried_elsewhere(
    router: Router, upstream: FakeUpstream, other_upstream: FakeUpstream
) -> None:
    upstream.script = Script(status=400, body="{}")
    with pytest.raises(UpstreamRefused):
        events_of(router, model(upstream.base_url, other_upstream.base_url))
    assert not other_upstream.received


def test_overloaded_upstream_is_retried(router: Router, upstream: FakeUpstream) -> None:
    upstream.scripts.extend([OVERLOADED, OVERLOADED])
    assert text_of(events_of(router, model(upstream.base_url, retries=2))) == "token token token "
    assert len(upstream.received) == 3


def test_rounds_are_limited_and_the_last_word_is_the_overload(router: Router, upstream: FakeUpstream) -> None:
    upstream.script = OVERLOADED
    with pytest.raises(ProviderOverloaded):
        events_of(router, model(upstream.base_url, retries=1))
    assert len(upstream.received) == 2


def test_long_retry_after_is_returned_without_waiting(router: Router, upstream: FakeUpstream) -> None:
    upstream.script = Script(status=503, body="later", headers={"Retry-After": "120"})
    with pytest.raises(ProviderOverloaded) as raised:
        events_of(router, model(upstream.base_url, retries=5))
    assert raised.value.retry_after_seconds == 120
    assert len(upstream.received) == 1


@pytest.mark.usefixtures("clock")
def test_a_short_retry_after_is_waited_for_unless_the_deadline_is_nearer(
    router: Router, upstream: FakeUpstream
) -> None:
    upstream.script = Script(status=503, body="later", headers={"Retry-After": "5"})
    with pytest.raises(ProviderOverloaded):
        events_of(router, model(upstream.base_url, retries=5, deadline_seconds=2))
    assert len(upstream.received) == 1


class CancelledInItsWait(threading.Event):
    """A cancellation that comes when the call begins to wait for another round."""

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        assert timeout >= 7
        self.set()
        return super().wait(timeout)


def test_cancelling_ends_a_wait(router: Router, upstream: FakeUpstream) -> None:
    upstream.script = Script(status=503, body="later", headers={"Retry-After": "7"})
    with pytest.raises(CallCancelled) as raised:
        events_of(router, model(upstream.base_url, retries=5), cancelled=CancelledInItsWait())
    assert not raised.value.may_have_cost
    assert len(upstream.received) == 1


def test_recently_failed_upstream_is_tried_last(
    router: Router, upstream: FakeUpstream, other_upstream: FakeUpstream
) -> None:
    upstream.scripts.append(Script(status=503, body="later", headers={"Retry-After": "60"}))
    entry = model(upstream.base_url, other_upstream.base_url)
    for _ in range(3):
        events_of(router, entry)
    assert len(upstream.received) == 1
    assert len(other_upstream.received) == 3


def test_overload_outranks_another_upstreams_failure(
    router: Router, upstream: FakeUpstream, nobody: str
) -> None:
    upstream.script = Script(status=429, body="later", headers={"Retry-After": "60"})
    with pytest.raises(ProviderOverloaded):
        events_of(router, model(upstream.base_url, nobody, retries=0))
