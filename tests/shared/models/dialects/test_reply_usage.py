"""The usage in a reply equals the charged counts, also after an implausible report of the upstream."""

import json

import pytest

from shared.models.dialects import (
    UPSTREAM_DIALECTS,
    Dialect,
    ParsedRequest,
    TokenCounts,
    parse_chat,
    parse_messages,
    parse_responses,
)
from shared.models.dialects.token_counts import read_usage
from tests.shared.models.dialects.serving import MODEL, read_frames, relay, translator_for, write_stream
from tests.shared.models.dialects.upstreams import CHAT_USAGE, RESPONSES_USAGE, Json, Reply, chunk, events_of

_CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
_RESPONSE = {"model": MODEL, "store": False, "input": "hi"}
CHAT, RESPONSES = parse_chat(_CHAT), parse_responses(_RESPONSE)
CHAT_STREAM = parse_chat({**_CHAT, "stream": True, "stream_options": {"include_usage": True}})
RESPONSES_STREAM = parse_responses({**_RESPONSE, "stream": True})
MESSAGES_STREAM = parse_messages({**_CHAT, "max_tokens": 9, "stream": True})
STREAMS = pytest.mark.parametrize("parsed", [CHAT_STREAM, RESPONSES_STREAM], ids=["chat", "responses"])


IMPLAUSIBLE: dict[str, Json] = {
    "too many": {"prompt_tokens": 1, "completion_tokens": 10**15},
    "more cached than asked": {
        "prompt_tokens": 10,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 500},
    },
    "more of caches than asked": {
        "prompt_tokens": 10,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 5},
    },
    "more reasoned than said": {
        "prompt_tokens": 10,
        "completion_tokens": 7,
        "completion_tokens_details": {"reasoning_tokens": 8},
    },
}


def events_with(usage: Json, upstream: Dialect) -> list[Json]:
    """A reply of ten tokens, of which the upstream reports this usage."""
    reply = Reply(text=["abcd" * 10])
    told = json.dumps(events_of(reply, upstream))
    plausible = json.dumps(CHAT_USAGE if upstream is Dialect.CHAT else RESPONSES_USAGE)
    assert plausible in told
    events: list[Json] = json.loads(told.replace(plausible, json.dumps(usage)))
    return events


@pytest.mark.parametrize("parsed", [CHAT, CHAT_STREAM, RESPONSES, RESPONSES_STREAM])
@pytest.mark.parametrize("upstream", UPSTREAM_DIALECTS)
@pytest.mark.parametrize("name", IMPLAUSIBLE)
def test_counts_that_cannot_be_are_estimated_and_shown_as_they_are_charged(
    parsed: ParsedRequest, upstream: Dialect, name: str
) -> None:
    translator, frames = relay(parsed, upstream, events_with(IMPLAUSIBLE[name], upstream))
    charged, is_estimated = translator.settled_usage()
    assert is_estimated
    assert translator.is_report_implausible
    assert charged.completion_tokens == 10
    assert 0 < charged.prompt_tokens < 100
    assert (charged.cached_tokens, charged.cache_write_tokens, charged.reasoning_tokens) == (0, 0, 0)
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


def test_broken_reply_shows_the_charged_usage() -> None:
    translator = translator_for(RESPONSES_STREAM, Dialect.CHAT)
    deltas = translator.feed(chunk({"content": "abcd" * 10}))
    translator.fail("provider_error", "It broke.")
    deltas += translator.finish(cost="0.5")
    failed = read_frames(write_stream(RESPONSES_STREAM, deltas))[-2]
    counts, _ = translator.settled_usage()
    assert failed["type"] == "response.failed"
    assert failed["response"]["usage"]["cost"] == "0.5"
    assert read_usage(failed["response"]["usage"]) == counts


PROMPT_ALONE = {"prompt_tokens": 5000, "completion_tokens": 0}
_FAILED = {"object": "response", "status": "failed", "error": {"message": "boom"}, "usage": PROMPT_ALONE}
FAILURES = {
    "error": [{"error": {"message": "boom"}, "usage": PROMPT_ALONE}],
    "finish reason": [chunk({}, "error", usage=PROMPT_ALONE)],
    "report before the error": [chunk({}, usage=PROMPT_ALONE), {"error": {"message": "boom"}}],
    "zeros after the report": [
        chunk({}, usage=PROMPT_ALONE),
        {"error": "boom", "usage": {"prompt_tokens": 0, "completion_tokens": 0}},
    ],
    "response.failed": [{"type": "response.failed", "response": _FAILED}],
    "failed response": [_FAILED],
}


@pytest.mark.parametrize("parsed", [CHAT, CHAT_STREAM, RESPONSES, RESPONSES_STREAM, MESSAGES_STREAM])
@pytest.mark.parametrize("name", FAILURES)
def test_failure_before_the_first_word_is_charged_as_reported(parsed: ParsedRequest, name: str) -> None:
    upstream = Dialect.RESPONSES if "response" in name else Dialect.CHAT
    translator, _ = relay(parsed, upstream, FAILURES[name])
    assert translator.status == "failed"
    assert translator.settled_usage() == (TokenCounts(prompt_tokens=5000, completion_tokens=0), False)


def test_a_failure_that_reports_zeros_costs_nothing() -> None:
    nothing = {"prompt_tokens": 0, "completion_tokens": 0}
    translator, _ = relay(CHAT, Dialect.CHAT, [{"error": "boom", "usage": nothing}])
    assert translator.usage is None
    assert translator.settled_usage() == (TokenCounts(**nothing), False)
