"""What a reply tells of its usage: the counts that are charged, also where the upstream reports what cannot be."""

import json

import pytest

from shared.models.dialects import UPSTREAM_DIALECTS, Dialect, ParsedRequest, parse_chat, parse_responses
from shared.models.dialects.token_counts import read_usage
from tests.shared.models.dialects.serving import MODEL, read_frames, relay, translator_for, write_stream
from tests.shared.models.dialects.upstreams import CHAT_USAGE, RESPONSES_USAGE, Json, Reply, chunk, events_of

_CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
_RESPONSE = {"model": MODEL, "store": False, "input": "hi"}
CHAT, RESPONSES = parse_chat(_CHAT), parse_responses(_RESPONSE)
CHAT_STREAM = parse_chat({**_CHAT, "stream": True, "stream_options": {"include_usage": True}})
RESPONSES_STREAM = parse_responses({**_RESPONSE, "stream": True})
STREAMS = pytest.mark.parametrize("parsed", [CHAT_STREAM, RESPONSES_STREAM], ids=["chat", "responses"])


def implausible_events(upstream: Dialect) -> list[Json]:
    """A reply of ten tokens, of which the upstream reports a thousand million million."""
    reply = Reply(text=["abcd" * 10])
    told = json.dumps(events_of(reply, upstream))
    usage = CHAT_USAGE if upstream is Dialect.CHAT else RESPONSES_USAGE
    assert json.dumps(usage) in told
    events: list[Json] = json.loads(
        told.replace(json.dumps(usage), '{"prompt_tokens": 1, "completion_tokens": 1000000000000000}')
    )
    return events


@pytest.mark.parametrize("parsed", [CHAT, CHAT_STREAM, RESPONSES, RESPONSES_STREAM])
@pytest.mark.parametrize("upstream", UPSTREAM_DIALECTS)
def test_counts_that_cannot_be_are_estimated_and_shown_as_they_are_charged(
    parsed: ParsedRequest, upstream: Dialect
) -> None:
    translator, frames = relay(parsed, upstream, implausible_events(upstream))
    charged, is_estimated = translator.settled_usage()
    assert is_estimated
    assert translator.is_report_implausible
    assert charged.completion_tokens == 10
    assert 0 < charged.prompt_tokens < 100
    shown = [translator.result()["usage"]]
    if parsed.is_stream:
        last = read_frames(frames)[-1]
        shown.append(last.get("response", last)["usage"])
    assert [read_usage(usage) for usage in shown] == [charged] * len(shown)


@STREAMS
def test_a_cost_stands_beside_the_last_counts_alone(parsed: ParsedRequest) -> None:
    translator = translator_for(parsed, Dialect.CHAT)
    events = [chunk({"content": "a"}), chunk({}, "stop", usage=CHAT_USAGE)]
    early = [delta for event in events for delta in translator.feed(event)]
    translator.end()
    last = read_frames(write_stream(parsed, translator.finish(cost="0.000012")))[-1]
    assert last.get("response", last)["usage"]["cost"] == "0.000012"
    assert translator.result()["usage"]["cost"] == "0.000012"
    assert b"cost" not in b"".join(write_stream(parsed, early))


@STREAMS
def test_a_reply_shows_no_cost_that_is_not_known(parsed: ParsedRequest) -> None:
    events = [chunk({"content": "a"}), chunk({}, "stop", usage=CHAT_USAGE)]
    translator, frames = relay(parsed, Dialect.CHAT, events)
    assert b"cost" not in b"".join(frames)
    assert "cost" not in translator.result()["usage"]


def test_a_reply_that_broke_tells_what_is_charged_for_it() -> None:
    translator = translator_for(RESPONSES_STREAM, Dialect.CHAT)
    deltas = translator.feed(chunk({"content": "abcd" * 10}))
    translator.fail("provider_error", "It broke.")
    deltas += translator.finish(cost="0.5")
    failed = read_frames(write_stream(RESPONSES_STREAM, deltas))[-2]
    counts, _ = translator.settled_usage()
    assert failed["type"] == "response.failed"
    assert failed["response"]["usage"]["cost"] == "0.5"
    assert read_usage(failed["response"]["usage"]) == counts
