"""Deviations of real upstreams from OpenAI's API, and the normalized reply."""

import json
from typing import Any

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from shared.models.dialects import (
    UPSTREAM_DIALECTS,
    Dialect,
    ParsedRequest,
    TokenCounts,
    Translator,
    parse_chat,
    parse_responses,
)
from tests.shared.models.dialects.serving import MODEL, read_frames, relay, translator_for, write_stream
from tests.shared.models.dialects.upstreams import (
    CHAT_USAGE,
    RESPONSES_USAGE,
    Json,
    Reply,
    chat_chunks,
    chunk,
    events_of,
    response_events,
    usage_chunk,
)

COUNTS = TokenCounts(prompt_tokens=11, completion_tokens=7, cached_tokens=4, reasoning_tokens=2)


def chat(**fields: Any) -> ParsedRequest:
    return parse_chat({"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **fields})


def responses(**fields: Any) -> ParsedRequest:
    return parse_responses({"model": MODEL, "store": False, "input": "hi", **fields})


def read_chat(
    chunks: list[Json], *, received_done_marker: bool = False, **fields: Any
) -> tuple[Json, Translator]:
    """Return the only choice of a chat completion made from these chunks."""
    translator, _ = relay(chat(**fields), Dialect.CHAT, chunks, received_done_marker=received_done_marker)
    assert translator.failure is None
    return translator.result()["choices"][0], translator


def stream_chat(chunks: list[Json], **fields: Any) -> list[Json]:
    return read_frames(relay(chat(stream=True, **fields), Dialect.CHAT, chunks)[1])


def tool(index: int | None, call_id: str | None, name: str | None, arguments: Any) -> Json:
    function = {"name": name, "arguments": arguments} if name is not None else {"arguments": arguments}
    fragment: Json = {"function": function}
    if index is not None:
        fragment["index"] = index
    if call_id is not None:
        fragment |= {"id": call_id, "type": "function"}
    return chunk({"tool_calls": [fragment]})


def calls_of(choice: Json) -> list[tuple[str, str]]:
    return [
        (call["function"]["name"], call["function"]["arguments"]) for call in choice["message"]["tool_calls"]
    ]


def test_usage_on_the_finish_chunk_moves_to_a_chunk_of_its_own() -> None:
    chunks = [chunk({"content": "a"}), chunk({}, "stop", usage=CHAT_USAGE)]
    events = stream_chat(chunks, stream_options={"include_usage": True})
    assert [event["usage"] for event in events[:-1]] == [None, None]
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["total_tokens"] == 18
    assert all("usage" not in event for event in stream_chat(chunks))


def test_usage_in_every_chunk_counts_once() -> None:
    running = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
    chunks = [
        chunk({"content": "a"}, usage=running),
        chunk({}, "stop", usage=CHAT_USAGE),
        chunk({}, usage=None),
    ]
    _, translator = read_chat(chunks)
    assert translator.usage == COUNTS


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({"input_tokens": 5, "output_tokens": 2}, TokenCounts(prompt_tokens=5, completion_tokens=2)),
        ({"prompt_tokens": 5, "total_tokens": 7}, TokenCounts(prompt_tokens=5, completion_tokens=2)),
        (
            {"prompt_tokens": 5, "completion_tokens": 2, "prompt_cache_hit_tokens": 4},
            TokenCounts(prompt_tokens=5, completion_tokens=2, cached_tokens=4),
        ),
        (
            {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cache_write_tokens": 3}},
            TokenCounts(prompt_tokens=5, completion_tokens=2, cache_write_tokens=3),
        ),
        (
            {
                "input_tokens": 1,
                "output_tokens": 2,
                "cache_read_input_tokens": 4,
                "cache_creation_input_tokens": 3,
            },
            TokenCounts(prompt_tokens=8, completion_tokens=2, cached_tokens=4, cache_write_tokens=3),
        ),
        (
            {"prompt_tokens": 8, "completion_tokens": 2, "cache_read_input_tokens": 4},
            TokenCounts(prompt_tokens=8, completion_tokens=2, cached_tokens=4),
        ),
        (
            {
                "input_tokens": 8,
                "output_tokens": 2,
                "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
                "output_tokens_details": {"reasoning_tokens": 1},
            },
            TokenCounts(
                prompt_tokens=8,
                completion_tokens=2,
                cached_tokens=4,
                cache_write_tokens=3,
                reasoning_tokens=1,
            ),
        ),
        (
            {
                "prompt_tokens": 5,
                "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1},
            },
            TokenCounts(prompt_tokens=5, completion_tokens=2, cached_tokens=4, cache_write_tokens=1),
        ),
        (
            {
                "prompt_tokens": 5,
                "completion_tokens": 2,
                "total_tokens": 17,
                "completion_tokens_details": {"reasoning_tokens": 10},
            },
            TokenCounts(prompt_tokens=5, completion_tokens=12, reasoning_tokens=10),
        ),
        ({"prompt_tokens": -5, "completion_tokens": 2}, None),
        ({"prompt_tokens": "5", "completion_tokens": True}, None),
        ({"prompt_tokens": 0, "completion_tokens": 0}, None),
        (None, None),
    ],
)
def test_usage_is_read_in_every_spelling(usage: Json | None, counts: TokenCounts | None) -> None:
    _, translator = read_chat([chunk({"content": "abcd" * 10}), chunk({}, "stop", usage=usage)])
    assert translator.usage == counts
    settled, is_estimated = translator.settled_usage()
    assert is_estimated is (counts is None)
    assert translator.result()["usage"]["completion_tokens"] == settled.completion_tokens
    if is_estimated:
        assert settled.completion_tokens == 10


def test_the_model_and_ids_are_ours() -> None:
    events = stream_chat(chat_chunks(Reply(text=["a"])))
    assert {(event["id"], event["model"]) for event in events} == {
        ("chatcmpl-01935b2a000070008000000000000001", MODEL)
    }


def test_other_fields_of_the_upstream_stay() -> None:
    events = stream_chat([chunk({"content": "a", "vendor": 1}, citations=["https://x"]), chunk({}, "stop")])
    assert events[0]["citations"] == ["https://x"]
    assert events[0]["choices"][0]["delta"]["vendor"] == 1
    assert events[0]["system_fingerprint"] == "fp_1"


def test_an_unknown_service_tier_is_left_out() -> None:
    events = stream_chat(
        [chunk({"content": "a"}, service_tier="on_demand"), chunk({}, "stop", service_tier="flex")]
    )
    assert [event.get("service_tier") for event in events] == [None, "flex"]


def test_empty_deltas_and_repeated_roles_disappear() -> None:
    role = {"role": "assistant", "content": ""}
    chunks = [
        chunk(dict(role)),
        chunk(dict(role)),
        chunk({"role": "assistant", "content": "a"}),
        chunk({}),
        chunk({}, "stop"),
    ]
    deltas = [event["choices"][0]["delta"] for event in stream_chat(chunks)]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "a"}, {}]


def test_null_content_is_no_text() -> None:
    choice, _ = read_chat(
        [chunk({"role": "assistant", "content": None}), chunk({"content": "a"}), chunk({}, "stop")]
    )
    assert choice["message"]["content"] == "a"


def test_content_in_parts_is_joined() -> None:
    choice, _ = read_chat(
        [chunk({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "stop")]
    )
    assert choice["message"]["content"] == "ab"


@pytest.mark.parametrize(
    "fragments",
    [
        [
            tool(0, "x", "f", ""),
            tool(0, None, None, '{"a"'),
            tool(0, None, None, ":1}"),
            tool(1, "y", "g", "{}"),
        ],
        [tool(0, "x", "f", '{"a":1}'), tool(0, "y", "g", "{}")],
        [tool(1, "x", "f", '{"a":1}'), tool(2, "y", "g", "{}")],
        [tool(None, "x", "f", '{"a":1}'), tool(None, "y", "g", "{}")],
        [tool(0, None, "f", '{"a":1}'), tool(0, None, "g", "{}")],
        [tool(0, "x", "f", '{"a"'), tool(0, "x", "f", ":1}"), tool(1, "y", "g", "{}"), tool(1, "y", "g", "")],
        [
            tool(0, "x", "f", '{"a"'),
            tool(1, "y", "g", "{"),
            tool(0, None, None, ":1}"),
            tool(1, None, None, "}"),
        ],
        [tool(None, None, "f", '{"a"'), tool(None, None, None, ":1}"), tool(None, None, "g", "{}")],
        [tool(0, "", "f", '{"a":1}'), tool(1, "", "g", "{}")],
    ],
    ids=[
        "openai",
        "same-index",
        "from-one",
        "no-index",
        "no-id",
        "repeated",
        "woven",
        "nothing",
        "empty-ids",
    ],
)
def test_tool_calls_come_together_from_any_fragments(fragments: list[Json]) -> None:
    chunks = [*fragments, chunk({}, "tool_calls")]
    choice, _ = read_chat(chunks)
    assert calls_of(choice) == [("f", '{"a":1}'), ("g", "{}")]
    ids = [call["id"] for call in choice["message"]["tool_calls"]]
    assert len(set(ids)) == 2
    assert all(ids)
    translator, _ = relay(responses(), Dialect.CHAT, chunks)
    found = [(item["name"], item["arguments"]) for item in translator.result()["output"]]
    assert found == calls_of(choice)


def test_arguments_given_as_an_object_become_text() -> None:
    choice, _ = read_chat([tool(0, "x", "f", {"a": 1}), chunk({}, "tool_calls")])
    assert calls_of(choice) == [("f", '{"a": 1}')]


def test_a_call_without_arguments_is_an_empty_object_for_responses() -> None:
    _, frames = relay(responses(stream=True), Dialect.CHAT, [tool(0, "x", "f", ""), chunk({}, "tool_calls")])
    events = read_frames(frames)
    assert events[-1]["response"]["output"][0]["arguments"] == "{}"
    assert [event["delta"] for event in events if "delta" in event] == ["{}"]


@pytest.mark.parametrize(
    ("given", "read"), [("eos", "stop"), ("max_tokens", "length"), ("tool_use", "tool_calls")]
)
def test_foreign_finish_reasons_are_translated(given: str, read: str) -> None:
    choice, _ = read_chat([chunk({"content": "a"}), chunk({}, given)])
    assert choice["finish_reason"] == read


def test_a_missing_finish_reason_is_inferred_only_after_a_sign_of_completion() -> None:
    chunks = [chunk({"content": "a"})]
    translator, frames = relay(chat(stream=True), Dialect.CHAT, chunks)
    assert translator.failure is not None
    assert "error" in read_frames(frames)[-1]
    assert read_chat(chunks, received_done_marker=True)[0]["finish_reason"] == "stop"
    assert read_chat([*chunks, usage_chunk()])[0]["finish_reason"] == "stop"
    assert read_chat([tool(0, "x", "f", "{}")], received_done_marker=True)[0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("received_done_marker", [False, True])
def test_an_empty_stream_is_a_failure(received_done_marker: bool) -> None:
    for parsed in (chat(stream=True), responses(stream=True)):
        for upstream in UPSTREAM_DIALECTS:
            translator, frames = relay(parsed, upstream, [], received_done_marker=received_done_marker)
            assert translator.status == "failed"
            assert not translator.has_started
            assert frames[-1] == b"data: [DONE]\n\n"


def test_several_choices_open_in_order_and_end_one_by_one() -> None:
    chunks = [
        chunk({"content": "b"}, index=1),
        chunk({"content": "a"}),
        chunk({}, "stop", index=1),
        chunk({}, "length"),
    ]
    events = stream_chat(chunks, n=2)
    assert [event["choices"][0]["index"] for event in events] == [0, 1, 0, 1, 0]
    translator, _ = relay(chat(n=2), Dialect.CHAT, chunks)
    choices = translator.result()["choices"]
    assert [(choice["message"]["content"], choice["finish_reason"]) for choice in choices] == [
        ("a", "length"),
        ("b", "stop"),
    ]
    assert translator.status == "incomplete"


ONE_OF_TWO = [chunk({"content": "a"}), chunk({}, "stop")]


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("second", [[], [chunk({"content": "b"}, index=1)]], ids=["missing", "begun"])
def test_a_reply_with_fewer_choices_than_were_asked_for_has_broken(
    is_stream: bool, second: list[Json]
) -> None:
    translator, frames = relay(chat(n=2, stream=is_stream), Dialect.CHAT, [*ONE_OF_TWO, *second])
    assert translator.status == "failed"
    if is_stream:
        assert "error" in read_frames(frames)[-1]


@pytest.mark.parametrize("received_done_marker", [False, True])
def test_upstream_with_fewer_choices_may_end_with_a_done_marker(received_done_marker: bool) -> None:
    chunks = ONE_OF_TWO if received_done_marker else [*ONE_OF_TWO, usage_chunk()]
    translator, _ = relay(chat(n=2), Dialect.CHAT, chunks, received_done_marker=received_done_marker)
    assert translator.failure is None
    assert [choice["message"]["content"] for choice in translator.result()["choices"]] == ["a"]


@pytest.mark.parametrize(
    "error",
    [
        {"error": {"message": "boom", "code": 500}},
        {"error": "boom"},
        {"object": "error", "message": "boom"},
        {"type": "error", "message": "boom", "code": "server_error"},
        {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "boom"}}},
    ],
)
@pytest.mark.parametrize("parsed", [chat(stream=True), responses(stream=True)], ids=["chat", "responses"])
@pytest.mark.parametrize("upstream", UPSTREAM_DIALECTS)
def test_an_error_in_the_stream_ends_it(error: Json, parsed: ParsedRequest, upstream: Dialect) -> None:
    said = [chunk({"content": "a"})] if upstream is Dialect.CHAT else response_events(Reply(text=["a"]))[:4]
    translator, frames = relay(parsed, upstream, [*said, error, *said])
    assert translator.failure is not None
    assert (translator.failure.code, translator.failure.message) == ("provider_error", "boom")
    assert translator.status == "failed"
    last = read_frames(frames)[-1]
    assert (last["error"]["message"], last["error"]["code"]) == ("boom", "provider_error")
    if parsed.dialect is Dialect.RESPONSES:
        before = read_frames(frames)[-2]
        assert before["type"] == "response.failed"
        assert last["sequence_number"] == before["sequence_number"] + 1


def test_a_finish_reason_that_means_failure_is_one() -> None:
    translator, _ = relay(chat(), Dialect.CHAT, [chunk({"content": "a"}), chunk({}, "error")])
    assert translator.status == "failed"


def test_an_upstreams_key_is_not_passed_on() -> None:
    translator, frames = relay(
        chat(stream=True), Dialect.CHAT, [{"error": {"message": "bad key sk-abcdefghijklm"}}]
    )
    assert b"abcdefghijklm" not in b"".join(frames)
    assert translator.failure is not None


def test_failed_response_contains_the_output_so_far() -> None:
    parsed = responses(stream=True)
    translator = translator_for(parsed, Dialect.CHAT)
    deltas = translator.feed(chunk({"content": "half"}))
    translator.fail("provider_timeout", "The provider took too long.")
    deltas += translator.finish()
    events = read_frames(write_stream(parsed, deltas))
    assert events[-2]["response"]["output"][0]["content"][0]["text"] == "half"
    assert events[-2]["response"]["output"][0]["status"] == "incomplete"
    assert events[-1]["code"] == "provider_timeout"
    translator.fail("a", "b")
    assert translator.finish() == translator.feed(chunk({"content": "x"})) == []
    assert translator.completion_size_bytes == 4


@pytest.mark.parametrize("parsed", [chat(stream=True), responses(stream=True)], ids=["chat", "responses"])
@pytest.mark.parametrize("upstream", UPSTREAM_DIALECTS)
def test_deltas_expose_their_text_and_refusal(parsed: ParsedRequest, upstream: Dialect) -> None:
    reply = Reply(text=["one ", "two"], refusal=["I ", "won't"], calls=[("x", "f", ["{", "}"])])
    events = events_of(reply, upstream)
    translator = translator_for(parsed, upstream)
    deltas = [delta for event in events for delta in translator.feed(event)]
    translator.end()
    deltas += translator.finish()
    assert "".join(delta.text for delta in deltas) == "one two"
    assert "".join(delta.refusal for delta in deltas) == "I won't"


def test_an_event_of_any_fields_is_relayed() -> None:
    said = response_events(Reply(text=["a"]))
    said.insert(2, {"type": "response.other", "self": 1, "type_": 2, "kind": 3})
    events = read_frames(relay(responses(stream=True), Dialect.RESPONSES, said)[1])
    (other,) = [event for event in events if event["type"] == "response.other"]
    assert (other["self"], other["type_"], other["kind"]) == (1, 2, 3)


@pytest.mark.parametrize("stream", [False, True])
def test_json_document_instead_of_a_stream_is_accepted(stream: bool) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    completion = {
        "object": "chat.completion",
        "model": "x",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hi", "tool_calls": [call]},
                "finish_reason": "tool_calls",
            }
        ],
        "usage": CHAT_USAGE,
    }
    ended = response_events(Reply(text=["hi"], calls=[("c", "f", ["{}"])]))[-1]["response"]
    for upstream, event, size in ((Dialect.CHAT, completion, 5), (Dialect.RESPONSES, ended, 4)):
        translator, frames = relay(chat(stream=stream), upstream, [event])
        assert translator.usage == COUNTS
        assert bool(frames) is stream
        if not stream:
            message = translator.result()["choices"][0]["message"]
            assert (message["content"], message["tool_calls"][0]["id"]) == ("hi", "c")
        translator, frames = relay(responses(stream=stream), upstream, [event])
        assert translator.usage == COUNTS
        assert translator.completion_size_bytes == size
        output = translator.result()["output"]
        assert [item["type"] for item in output] == ["message", "function_call"]
        if stream:
            assert [event["delta"] for event in read_frames(frames) if "delta" in event] == ["hi", "{}"]


def test_a_response_without_its_opening_event_gets_one() -> None:
    _, frames = relay(responses(stream=True), Dialect.RESPONSES, response_events(Reply(text=["a"]))[1:])
    events = read_frames(frames)
    assert [event["type"] for event in events[:2]] == ["response.created", "response.output_item.added"]


def test_item_ids_that_change_are_held_steady() -> None:
    events = response_events(Reply(text=["a"]))
    events[-2]["item"] = {**events[-2]["item"], "id": "msg_other"}
    events[-1]["response"] = {**events[-1]["response"], "output": []}
    _, frames = relay(responses(stream=True), Dialect.RESPONSES, events)
    read = read_frames(frames)
    assert {event["item_id"] for event in read if "item_id" in event} == {"msg_0"}
    assert [item["id"] for item in read[-1]["response"]["output"]] == ["msg_0"]


def test_text_only_in_done_events_is_kept() -> None:
    events = [
        event
        for event in response_events(Reply(text=["a", "b"], calls=[("c", "f", ["{}"])]))
        if "delta" not in event
    ]
    translator, _ = relay(chat(), Dialect.RESPONSES, events)
    choice = translator.result()["choices"][0]
    assert (choice["message"]["content"], calls_of(choice)) == ("ab", [("f", "{}")])


def test_a_responses_upstream_that_never_ends_its_response_has_failed() -> None:
    for parsed in (chat(), responses()):
        translator, _ = relay(
            parsed, Dialect.RESPONSES, response_events(Reply(text=["a"]))[:-1], received_done_marker=True
        )
        assert translator.status == "failed"


def test_numbers_that_json_lacks_become_finite() -> None:
    token = {"token": "a", "logprob": float("-inf"), "bytes": None, "top_logprobs": []}
    said = chunk({"content": "a"}, "stop")
    said["choices"][0]["logprobs"] = {"content": [token]}
    event = stream_chat([said])[0]
    assert event["choices"][0]["logprobs"]["content"][0]["logprob"] == -9999.0


def test_lone_surrogates_and_line_separators_travel() -> None:
    text = "\ud83d \u2028 \u0085 \r\n 天"
    event = stream_chat([chunk({"content": text}, "stop")])[0]
    assert event["choices"][0]["delta"]["content"] == text


def test_our_own_usage_is_shown_to_responses_clients_that_streamed_without() -> None:
    _, frames = relay(
        responses(stream=True), Dialect.CHAT, [chunk({"content": "abcdefgh"}), chunk({}, "stop")]
    )
    usage = read_frames(frames)[-1]["response"]["usage"]
    assert usage["output_tokens"] == 2
    assert set(usage) == set(RESPONSES_USAGE)


def test_a_report_from_the_start_does_not_settle_a_stream_that_broke() -> None:
    early = {"prompt_tokens": 11, "completion_tokens": 1, "total_tokens": 12}
    said = [chunk({"content": ""}, usage=early), chunk({"content": "word " * 80})]
    broken, _ = relay(chat(), Dialect.CHAT, said)
    assert broken.settled_usage() == (TokenCounts(prompt_tokens=11, completion_tokens=100), True)
    whole, _ = relay(chat(), Dialect.CHAT, [*said, chunk({}, "stop")])
    assert whole.settled_usage() == (TokenCounts(prompt_tokens=11, completion_tokens=1), False)


def test_reply_without_report_and_output_costs_nothing() -> None:
    nothing = TokenCounts(prompt_tokens=0, completion_tokens=0)
    for events in ([], [{"error": {"message": "busy"}}], [chunk({"role": "assistant", "content": ""})]):
        translator, _ = relay(chat(), Dialect.CHAT, events)
        assert translator.settled_usage() == (nothing, False)
    said, _ = relay(chat(), Dialect.CHAT, [chunk({"content": "a"})])
    assert said.settled_usage()[0].prompt_tokens > 0
    cancelled = translator_for(chat(), Dialect.CHAT)
    cancelled.feed(chunk({"role": "assistant", "content": ""}))
    cancelled.fail("cancelled", "The client left.")
    assert cancelled.settled_usage() == (nothing, False)
    silent, _ = relay(chat(), Dialect.CHAT, [chunk({"role": "assistant"}), chunk({}, "stop")])
    assert silent.settled_usage()[0].prompt_tokens > 0, "it surely worked, and found nothing to say"


def test_custom_tools_are_called_in_both_dialects() -> None:
    fragments = [
        chunk(
            {
                "tool_calls": [
                    {"index": 0, "id": "x", "type": "custom", "custom": {"name": "sql", "input": "SEL"}}
                ]
            }
        ),
        chunk({"tool_calls": [{"index": 0, "custom": {"input": "ECT 1"}}]}),
        chunk({}, "tool_calls"),
    ]
    call = {"id": "x", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}
    assert read_chat(fragments)[0]["message"]["tool_calls"] == [call]
    _, frames = relay(responses(stream=True), Dialect.CHAT, fragments)
    events = read_frames(frames)
    item = events[-1]["response"]["output"][0]
    assert (item["type"], item["call_id"], item["input"]) == ("custom_tool_call", "x", "SELECT 1")
    deltas = [e["delta"] for e in events if e["type"] == "response.custom_tool_call_input.delta"]
    assert deltas == ["SEL", "ECT 1"]
    back, _ = relay(chat(), Dialect.RESPONSES, events)
    assert back.result()["choices"][0]["message"]["tool_calls"] == [call]


def test_citations_travel_between_the_dialects() -> None:
    citation = {"url": "https://x", "title": "X", "start_index": 0, "end_index": 1}
    annotation = {"type": "url_citation", "url_citation": citation}
    chunks = [chunk({"content": "a"}), chunk({"annotations": [annotation]}), chunk({}, "stop")]
    assert read_chat(chunks)[0]["message"]["annotations"] == [annotation]
    _, frames = relay(responses(stream=True), Dialect.CHAT, chunks)
    events = read_frames(frames)
    part = events[-1]["response"]["output"][0]["content"][0]
    assert part["annotations"] == [{"type": "url_citation", **citation}]
    back, _ = relay(chat(), Dialect.RESPONSES, events)
    assert back.result()["choices"][0]["message"]["annotations"] == [annotation]


def test_a_body_holds_only_numbers_that_json_has() -> None:
    said = chunk({"content": "a"}, "stop")
    said["choices"][0]["logprobs"] = {
        "content": [{"token": "a", "logprob": float("-inf"), "top_logprobs": []}]
    }
    translator, _ = relay(chat(), Dialect.CHAT, [said])
    assert b"Infinity" not in translator.body()
    assert json.loads(translator.body())["object"] == "chat.completion"


def test_the_official_client_puts_choices_and_woven_calls_together() -> None:
    chunks = [
        chunk({"content": "b"}, index=1),
        tool(3, "x", "f", '{"a"'),
        tool(5, "y", "g", "{"),
        tool(3, None, None, ":1}"),
        tool(5, None, None, "}"),
        chunk({"annotations": [{"type": "url_citation"}]}),
        chunk({"annotations": [{"type": "url_citation"}]}),
        chunk({}, "tool_calls"),
        chunk({}, "stop", index=1),
    ]
    state = ChatCompletionStreamState()
    for event in stream_chat(chunks, n=2):
        list(state.handle_chunk(ChatCompletionChunk.model_validate(event)))
    first, second = state.get_final_completion().choices
    assert [call.to_dict()["id"] for call in first.message.tool_calls or ()] == ["x", "y"]
    assert (second.message.content, second.message.role) == ("b", "assistant")
