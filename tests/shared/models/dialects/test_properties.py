"""Property tests of the translator: the split of an upstream's stream changes nothing, and no input breaks it."""

import copy
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.models.dialects import (
    UPSTREAM_DIALECTS,
    Dialect,
    frame_writer,
    parse_chat,
    parse_messages,
    parse_responses,
    upstream_body,
)
from shared.models.dialects.requests import ParsedRequest
from shared.models.errors import InvalidRequest, ResponseStateNotSupported
from tests.shared.models.dialects.serving import MODEL, read_events, read_frames, relay, translator_for
from tests.shared.models.dialects.upstreams import (
    Json,
    Reply,
    chat_chunks,
    chat_completion,
    events_of,
    whole_response,
)

CHAT = parse_chat({"model": MODEL, "messages": [{"role": "user", "content": "hi"}]})
RESPONSES = parse_responses({"model": MODEL, "store": False, "input": "hi"})
CHAT_STREAM = parse_chat({**CHAT.body, "stream": True, "stream_options": {"include_usage": True}})
RESPONSES_STREAM = parse_responses({**RESPONSES.body, "stream": True})
MESSAGES = parse_messages({**CHAT.body, "max_tokens": 9, "thinking": {"type": "adaptive"}})
MESSAGES_STREAM = parse_messages({**MESSAGES.body, "stream": True})
PARSERS = {Dialect.CHAT: parse_chat, Dialect.RESPONSES: parse_responses, Dialect.MESSAGES: parse_messages}
pieces = st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=6)
arguments = st.dictionaries(
    st.text(max_size=3), st.integers() | st.text(max_size=5), min_size=1, max_size=3
).map(json.dumps)


@st.composite
def replies(draw: st.DrawFn) -> tuple[Reply, Reply]:
    """Draw one reply cut in two ways."""
    text, reasoning = draw(st.text(max_size=20)), draw(st.text(max_size=10))
    calls = draw(st.lists(st.tuples(st.sampled_from(["f", "g"]), arguments), max_size=3))
    if not text and not calls:
        text = "a"

    def cut() -> Reply:
        return Reply(
            text=draw(cuts(text)),
            reasoning=draw(cuts(reasoning)),
            calls=[(f"call_{n}", name, draw(cuts(said))) for n, (name, said) in enumerate(calls)],
        )

    return cut(), cut()


@st.composite
def cuts(draw: st.DrawFn, text: str) -> Sequence[str]:
    """Cut a text into pieces, some of them empty."""
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=5)))
    bounds = [0, *places, len(text)]
    return [text[a:b] for a, b in pairwise(bounds)] if text else []


def events_for(reply: Reply, upstream: Dialect) -> list[Json]:
    return events_of(reply, upstream)


def document_of(reply: Reply, upstream: Dialect) -> Json:
    return chat_completion(reply) if upstream is Dialect.CHAT else whole_response(reply)


def read(parsed: ParsedRequest, frames: list[bytes]) -> list[Json]:
    return read_events(frames) if parsed.dialect is Dialect.MESSAGES else read_frames(frames)


def streamed_text(parsed: ParsedRequest, frames: list[bytes]) -> str:
    """Return the joined text of a stream."""
    events = read(parsed, frames)
    match parsed.dialect:
        case Dialect.CHAT:
            pieces = [choice["delta"].get("content") for event in events for choice in event["choices"]]
        case Dialect.RESPONSES:
            pieces = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
        case Dialect.MESSAGES:
            pieces = [
                event["delta"].get("text") for event in events if event["type"] == "content_block_delta"
            ]
    return "".join(piece or "" for piece in pieces)


def essence(body: Json) -> Any:
    """Return what every dialect can express of a reply: text, reasoning, calls, usage."""
    if body.get("type") == "message":
        blocks, usage = body["content"], body["usage"]
        called = [b for b in blocks if b["type"] == "tool_use"]
        counts = [usage[name] for name in usage if name.endswith("tokens")]
        return (
            "".join(b["text"] for b in blocks if b["type"] == "text"),
            "".join(b["thinking"] for b in blocks if b["type"] == "thinking"),
            [(b["id"], b["name"], json.dumps(b["input"])) for b in called],
            sum(counts),
        )
    if body["object"] == "chat.completion":
        message, usage = body["choices"][0]["message"], body["usage"]
        calls = [
            (c["id"], c["function"]["name"], c["function"]["arguments"])
            for c in message.get("tool_calls", ())
        ]
        return message["content"] or "", message.get("reasoning_content", ""), calls, usage["total_tokens"]
    items = body["output"]
    text = "".join(part["text"] for item in items if item["type"] == "message" for part in item["content"])
    thought = [
        part["text"]
        for i in items
        if i["type"] == "reasoning"
        for part in [*i["summary"], *i.get("content", [])]
    ]
    calls = [(i["call_id"], i["name"], i["arguments"]) for i in items if i["type"] == "function_call"]
    return text, "".join(thought), calls, body["usage"]["total_tokens"]


@given(replies(), st.sampled_from(UPSTREAM_DIALECTS), st.sampled_from([CHAT, RESPONSES, MESSAGES]))
@settings(max_examples=100, deadline=None)
def test_any_cut_gives_the_same_reply(cut: tuple[Reply, Reply], upstream: Dialect, parsed: Any) -> None:
    first, second = (relay(parsed, upstream, events_for(reply, upstream))[0] for reply in cut)
    assert first.result() == second.result()
    whole = cut[0]
    calls = [(call_id, name, "".join(said)) for call_id, name, said in whole.calls]
    assert essence(first.result()) == ("".join(whole.text), "".join(whole.reasoning), calls, 18)


@given(replies(), st.sampled_from(["stop", "length", "content_filter"]), st.sampled_from(UPSTREAM_DIALECTS))
@settings(max_examples=150, deadline=None)
def test_plain_reply_equals_its_stream(cut: tuple[Reply, Reply], finish: str, upstream: Dialect) -> None:
    reply = replace(cut[0], finish=None if finish == "stop" else finish)
    for parsed in (CHAT, CHAT_STREAM, RESPONSES, RESPONSES_STREAM, MESSAGES, MESSAGES_STREAM):
        streamed, _ = relay(parsed, upstream, events_for(reply, upstream))
        whole, frames = relay(parsed, upstream, [document_of(reply, upstream)], received_done_marker=True)
        assert whole.settled_usage() == streamed.settled_usage()
        assert (whole.status, whole.failure) == (streamed.status, None)
        assert whole.completion_size_bytes == streamed.completion_size_bytes
        if parsed.is_stream:
            assert streamed_text(parsed, frames) == "".join(reply.text)
        else:
            assert whole.result() == streamed.result()


@given(replies(), st.sampled_from(UPSTREAM_DIALECTS))
@settings(max_examples=100, deadline=None)
def test_a_stream_adds_up_to_the_whole(cut: tuple[Reply, Reply], upstream: Dialect) -> None:
    events = events_for(cut[0], upstream)
    streamed = read_frames(relay(RESPONSES_STREAM, upstream, events)[1])
    assert streamed[-1]["response"] == relay(RESPONSES, upstream, events)[0].result()
    assert [event["sequence_number"] for event in streamed] == list(range(len(streamed)))
    said = "".join(event["delta"] for event in streamed if event["type"] == "response.output_text.delta")
    assert said == "".join(cut[0].text)


@given(replies(), st.sampled_from(UPSTREAM_DIALECTS))
@settings(max_examples=100, deadline=None)
def test_blocks_come_one_after_another_and_add_up(cut: tuple[Reply, Reply], upstream: Dialect) -> None:
    events = events_for(cut[0], upstream)
    told: list[Json] = []
    for event in read_events(relay(MESSAGES_STREAM, upstream, events)[1]):
        if event["type"] == "content_block_start":
            told.append({"index": event["index"], "said": "", "is_open": True})
        elif event["type"] == "content_block_delta":
            assert (told[-1]["index"], told[-1]["is_open"]) == (event["index"], True)
            told[-1]["said"] += next(text for name, text in event["delta"].items() if name != "type")
        elif event["type"] == "content_block_stop":
            told[-1]["is_open"] = False
    content = relay(MESSAGES, upstream, events)[0].result()["content"]
    assert [block["index"] for block in told] == list(range(len(content)))
    assert [block["said"] for block in told] == [
        json.dumps(block["input"]) if block["type"] == "tool_use" else block[block["type"]]
        for block in content
    ]


@given(replies())
@settings(max_examples=100, deadline=None)
def test_a_round_trip_through_both_dialects_keeps_the_reply(cut: tuple[Reply, Reply]) -> None:
    chunks = chat_chunks(cut[0])
    events = read_frames(relay(RESPONSES_STREAM, Dialect.CHAT, chunks)[1])
    back = read_frames(relay(CHAT_STREAM, Dialect.RESPONSES, events)[1])
    assert essence(relay(CHAT, Dialect.CHAT, back)[0].result()) == essence(
        relay(CHAT, Dialect.CHAT, chunks)[0].result()
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def mutilated(draw: st.DrawFn, value: Any) -> Any:
    """Replace, drop or add something anywhere in a value."""
    if isinstance(value, dict) and value and draw(st.integers(0, 9)):
        name = draw(st.sampled_from(sorted(value)))
        if not draw(st.integers(0, 5)):
            return {key: kept for key, kept in value.items() if key != name}
        return {**value, name: draw(mutilated(value[name]))}
    if isinstance(value, list) and value and draw(st.integers(0, 9)):
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], draw(mutilated(value[place])), *value[place + 1 :]]
    return draw(json_values)


@given(
    st.data(),
    st.sampled_from(UPSTREAM_DIALECTS),
    st.sampled_from([CHAT, CHAT_STREAM, RESPONSES, RESPONSES_STREAM, MESSAGES, MESSAGES_STREAM]),
)
@settings(max_examples=150, deadline=None)
def test_no_upstream_breaks_the_translator(data: st.DataObject, upstream: Dialect, parsed: Any) -> None:
    reply = Reply(text=["a"], refusal=["b"], reasoning=["c"], calls=[("x", "f", ["{", "}"])])
    is_whole = data.draw(st.booleans())
    events = [document_of(reply, upstream)] if is_whole else events_for(reply, upstream)
    places = data.draw(st.lists(st.integers(0, len(events) - 1), min_size=1, max_size=4))
    for place in places:
        changed = data.draw(mutilated(events[place]))
        events[place] = changed if isinstance(changed, dict) else {}
    translator, frames = relay(parsed, upstream, events)
    if parsed.is_stream:
        read(parsed, frames)
    elif translator.failure is None:
        json.dumps(translator.result())
    assert_deltas_stay_as_they_were_given(parsed, upstream, events)


def assert_deltas_stay_as_they_were_given(parsed: Any, upstream: Dialect, events: list[Json]) -> None:
    """The reader of deltas decides whether they are written at once or later."""
    translator, write = translator_for(parsed, upstream), frame_writer(parsed.dialect)
    given = [translator.feed(event) for event in copy.deepcopy(events)]
    translator.end()
    late = write([delta for deltas in [*given, translator.finish()] for delta in deltas])
    translator = translator_for(parsed, upstream)
    at_once = [write(translator.feed(event)) for event in copy.deepcopy(events)]
    translator.end()
    assert late == b"".join([*at_once, write(translator.finish())])


FULL_CHAT: Json = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "t"}, {"type": "image_url", "image_url": {"url": "u"}},
                                     {"type": "file", "file": {"file_data": "x"}},
                                     {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]},
        {"role": "assistant", "content": "a", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "d", "type": "custom", "custom": {"name": "g", "input": "x"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "7"},
        {"role": "function", "name": "f", "content": None},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}},
              {"type": "custom", "custom": {"name": "g", "format": {"type": "grammar", "grammar": {"a": "b"}}}}],
    "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [
        {"type": "function", "function": {"name": "f"}}]}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {}}},
    "web_search_options": {"user_location": {"type": "approximate", "approximate": {"city": "Oslo"}}},
    "max_tokens": 3, "n": 1, "logprobs": True, "stream_options": {"include_usage": True},
}  # fmt: skip
FULL_RESPONSES: Json = {
    "model": "m",
    "store": False,
    "instructions": "i",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "t"}, {"type": "input_image", "image_url": "u"},
                                     {"type": "input_file", "file_data": "x", "filename": "f"}]},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "s"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"},
                                                            {"type": "refusal", "refusal": "n"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "7"}]},
        {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "d", "output": "8"},
    ],
    "tools": [{"type": "function", "name": "f", "parameters": {}, "strict": True},
              {"type": "custom", "name": "g", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}}],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
    "text": {"format": {"type": "json_schema", "name": "s", "schema": {}}, "verbosity": "low"},
    "reasoning": {"effort": "low"}, "include": ["message.output_text.logprobs"], "max_output_tokens": 3,
}  # fmt: skip

FULL_MESSAGES: Json = {
    "model": "m",
    "max_tokens": 3,
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": [
            {"type": "text", "text": "t"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}},
            {"type": "document", "title": "d", "source": {"type": "content", "content": "c"}},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "x"}}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "h", "signature": "s"},
                                          {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c", "is_error": True, "content": [
                {"type": "text", "text": "7"},
                {"type": "image", "source": {"type": "url", "url": "https://example.org"}}]}]},
    ],
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}, "strict": True}],
    "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 2000},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {}}},
    "metadata": {"user_id": "u"}, "temperature": 0.5, "top_p": 0.9, "top_k": 3, "stream": False,
}  # fmt: skip
FULL = {Dialect.CHAT: FULL_CHAT, Dialect.RESPONSES: FULL_RESPONSES, Dialect.MESSAGES: FULL_MESSAGES}


@given(st.data(), st.sampled_from(Dialect), st.sampled_from(UPSTREAM_DIALECTS))
@settings(max_examples=150, deadline=None)
def test_no_request_breaks_the_translation(data: st.DataObject, dialect: Dialect, upstream: Dialect) -> None:
    body = FULL[dialect]
    for _ in range(data.draw(st.integers(0, 3))):
        body = data.draw(mutilated(body))
    try:
        parsed = PARSERS[dialect](body)
        asked = upstream_body(parsed, upstream, "up")
    except (InvalidRequest, ResponseStateNotSupported) as refused:
        assert refused.detail  # noqa: PT017 (which refusal is not the point, that it is one is)
        return
    assert asked["model"] == "up"
    assert asked["stream"] is parsed.is_stream
    assert ("stream_options" in asked) <= parsed.is_stream
