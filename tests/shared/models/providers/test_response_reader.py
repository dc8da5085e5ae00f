"""Responses of real servers with their deviations: accepted and refused forms."""

import gzip
from typing import Any, Literal

import pytest

from shared.models.dialects.requests import UPSTREAM_DIALECTS, Dialect
from shared.models.providers.base import Event
from shared.models.providers.errors import ProviderError
from shared.models.providers.routing import Router
from tests.shared.models.providers.calls import (
    FRAMINGS,
    NEVER,
    body,
    events_of,
    model,
    read,
    text_of,
    usage_of,
)
from tests.support.models.upstream_scripts import Script
from tests.support.models.upstreams import FakeUpstream

WELL_FORMED: dict[str, Script] = {
    "as OpenAI does": Script(),
    "usage on the finish chunk": Script(usage="finish chunk"),
    "usage on every chunk": Script(usage="every chunk"),
    "no [DONE]": Script(terminator=False),
    "no [DONE], no last blank line": Script(terminator=False, last_blank_line=False),
    "CRLF": Script(line_end="\r\n"),
    "CR": Script(line_end="\r"),
    "comments between": Script(comments=True),
    "huge events": Script(pad_bytes=300_000),
    "dripping": Script(drip_bytes=90, drip_seconds=0.001),
    "delimited by the connection's end": Script(framing="close"),
    "with a length": Script(framing="length"),
    "as JSON by its type": Script(content_type="application/json"),
    "as text": Script(content_type="text/plain"),
    "one JSON document": Script(as_document=True),
    "one JSON document called a stream": Script(as_document=True, content_type="text/event-stream"),
}


@pytest.mark.parametrize("script", WELL_FORMED.values(), ids=WELL_FORMED.keys())
@pytest.mark.parametrize("dialect", UPSTREAM_DIALECTS)
def test_text_and_usage_arrive_however_they_are_sent(
    router: Router, upstream: FakeUpstream, dialect: Dialect, script: Script
) -> None:
    upstream.script = script
    events = events_of(router, model(upstream.base_url, dialect=dialect))
    documents = [
        part["text"] for event in events for item in event.get("output", ()) for part in item["content"]
    ]
    assert text_of(events) + "".join(documents) == "token token token "
    usage = usage_of(events)
    assert usage is not None
    assert usage["total_tokens"] == 13


def test_usage_that_is_not_sent_is_not_invented(router: Router, upstream: FakeUpstream) -> None:
    upstream.script = Script(usage="none")
    assert usage_of(events_of(router, model(upstream.base_url))) is None


@FRAMINGS
def test_events_that_arrive_together_come_together(
    router: Router, upstream: FakeUpstream, framing: Literal["chunked", "length", "close"]
) -> None:
    upstream.script = Script(framing=framing, chunks=400)
    with router.open(model(upstream.base_url), lambda _: body(), cancelled=NEVER) as stream:
        batches = list(stream.batches())
    assert sum(map(len, batches)) == 403
    assert len(batches) < 100


def test_an_event_is_given_before_the_next_is_there(router: Router, upstream: FakeUpstream) -> None:
    upstream.script = Script(chunks=1000, delay_seconds=0.02)
    with router.open(model(upstream.base_url), lambda _: body(), cancelled=NEVER) as stream:
        batches = stream.batches()
        first, second = next(batches), next(batches)
        assert len(first) == len(second) == 1
        assert upstream.served[0].ended == "running"


def test_the_name_of_an_event_stands_in_for_a_missing_type(router: Router, upstream: FakeUpstream) -> None:
    upstream.script = Script(raw=stream_of("event: response.created\ndata: {}\n\n"))
    events = events_of(router, model(upstream.base_url, dialect=Dialect.RESPONSES))
    assert events == [{"type": "response.created"}]


def test_errors_within_a_stream_are_events_like_others(router: Router, upstream: FakeUpstream) -> None:
    upstream.script = Script(fail_after=1)
    events = events_of(router, model(upstream.base_url))
    assert events[-1]["error"]["message"] == "engine fell over"


def test_a_connection_serves_one_call_after_the_other(router: Router, upstream: FakeUpstream) -> None:
    entry = model(upstream.base_url)
    for script in (
        Script(),
        Script(terminator=False),
        Script(framing="length"),
        Script(as_document=True),
        Script(),
    ):
        upstream.script = script
        events_of(router, entry)
    assert upstream.connections == 1


def test_a_connection_serves_the_next_call_after_a_whole_error(
    router: Router, upstream: FakeUpstream
) -> None:
    entry = model(upstream.base_url)
    for script in (Script(wait_seconds=0.01, fail_after=1), Script()):
        upstream.script = script
        events_of(router, entry, stream=False)
    assert upstream.connections == 1
    assert [line.ended for line in upstream.wait_for_end_of(2)] == ["broken", "answered"]


def test_response_left_early_closes_its_connection(router: Router, upstream: FakeUpstream) -> None:
    upstream.script = Script(chunks=1000, delay_seconds=0.01)
    with router.open(model(upstream.base_url), lambda _: body(), cancelled=NEVER) as stream:
        next(iter(stream))
    [line] = upstream.wait_for_end_of(1)
    assert line.ended == "client left"
    assert line.completion_tokens < 1000


BROKEN: dict[str, Script] = {
    "reset": Script(reset_after=2),
    "closed without its last chunk": Script(close_after=2),
    "closed short of its length": Script(close_after=2, framing="length"),
    "not JSON": Script(garbage_after=2),
}


@pytest.mark.parametrize("script", BROKEN.values(), ids=BROKEN.keys())
def test_events_before_a_break_are_returned_and_the_break_raises(
    router: Router, upstream: FakeUpstream, script: Script
) -> None:
    upstream.script = script
    events: list[Event] = []
    with (
        router.open(model(upstream.base_url), lambda _: body(), cancelled=NEVER) as stream,
        pytest.raises(ProviderError) as raised,
    ):
        read(stream, events)
    assert text_of(events) == "token token "
    assert raised.value.may_have_cost
    assert raised.value.code == "provider_error"


def test_an_event_that_the_end_cuts_is_dropped(router: Router, upstream: FakeUpstream) -> None:
    upstream.script = Script(raw=stream_of('data: {"choices":[]}\n\ndata: {"choices":[{"del'))
    assert events_of(router, model(upstream.base_url)) == [{"choices": []}]


NONSENSE: dict[str, Any] = {
    "nothing": "",
    "white space": " \r\n" * 100,
    "a page": "<!DOCTYPE html><html><body>Welcome</body></html>",
    "cut JSON": '{"object": "chat.completion", "choices": [',
    "a list": "[1, 2]",
    "an event that is no object": "data: 7\n\n",
    "deep JSON": "data: " + "[" * 100_000 + "\n\n",
    "bad UTF-8": 'data: {"a":"\xff"}\n\n',
}


@pytest.mark.parametrize("content", NONSENSE.values(), ids=NONSENSE.keys())
def test_invalid_response_is_an_error(router: Router, upstream: FakeUpstream, content: str) -> None:
    upstream.script = Script(raw=stream_of(content))
    with pytest.raises(ProviderError) as raised:
        events_of(router, model(upstream.base_url))
    assert raised.value.may_have_cost


def test_html_page_costs_nothing(router: Router, upstream: FakeUpstream) -> None:
    upstream.script = Script(body="<html>Log in</html>", content_type="text/html")
    with pytest.raises(ProviderError) as raised:
        events_of(router, model(upstream.base_url))
    assert not raised.value.may_have_cost


def test_compressed_response_is_refused_unread(router: Router, upstream: FakeUpstream) -> None:
    bomb = gzip.compress(b"data: {}\n\n" * 100_000).decode("latin-1")
    upstream.script = Script(raw=stream_of(bomb, "Content-Encoding: gzip"))
    with pytest.raises(ProviderError, match="compressed"):
        events_of(router, model(upstream.base_url))
    assert upstream.received[0].headers["accept-encoding"] == "identity"


def test_an_event_larger_than_is_sane_is_refused(
    router: Router, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.models.providers.response_reader.MAX_EVENT_BYTES", 100_000)
    upstream.script = Script(pad_bytes=300_000)
    with pytest.raises(ProviderError, match="larger than the limit"):
        events_of(router, model(upstream.base_url))


def test_a_document_larger_than_is_sane_is_refused(
    router: Router, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.models.providers.response_reader.MAX_JSON_BYTES", 100_000)
    upstream.script = Script(as_document=True, piece="x" * 100_000)
    with pytest.raises(ProviderError, match="larger than the limit"):
        events_of(router, model(upstream.base_url))


def test_endless_response_is_refused(
    router: Router, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.models.providers.response_reader.MAX_ANSWER_BYTES", 100_000)
    upstream.script = Script(chunks=10_000)
    with pytest.raises(ProviderError, match="larger than the limit"):
        events_of(router, model(upstream.base_url))


def stream_of(content: str, *headers: str) -> str:
    lines = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Connection: close", *headers]
    return "\r\n".join([*lines, "", content])
