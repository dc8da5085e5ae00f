"""Accepted and refused requests of both creation endpoints of OpenAI's dialects, and the field that a refusal names."""

from typing import Any

import pytest

from shared.errors import Kind
from shared.models.dialects import Dialect, describe, estimate_prompt_tokens, parse_chat, parse_responses
from shared.models.errors import InvalidRequest, ResponseStateNotSupported

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
RESPONSES: dict[str, Any] = {"model": "m", "store": False, "input": "hi"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def test_chat_request_is_described() -> None:
    parsed = parse_chat(
        {
            **CHAT,
            "stream": True,
            "stream_options": {"include_usage": True},
            "n": 2,
            "max_tokens": 5,
            "max_completion_tokens": 9,
        }
    )
    assert (parsed.dialect, parsed.model, parsed.n) == (Dialect.CHAT, "m", 2)
    assert (parsed.is_stream, parsed.wants_usage, parsed.max_output_tokens) == (True, True, 9)
    assert describe(Dialect.CHAT, parsed.body, is_stream=True) == parsed


def test_responses_request_is_described() -> None:
    parsed = parse_responses({**RESPONSES, "max_output_tokens": 7})
    assert (parsed.dialect, parsed.is_stream, parsed.wants_usage) == (Dialect.RESPONSES, False, True)
    assert (parsed.max_output_tokens, parsed.n) == (7, 1)


@pytest.mark.parametrize("stream", [None, False, True])
def test_the_accept_header_asks_for_a_stream_too(stream: bool | None) -> None:
    assert parse_chat({**CHAT, "stream": stream}, accepts_events=True).is_stream
    assert parse_responses({**RESPONSES, "stream": stream}, accepts_events=True).is_stream


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tools", [{"type": "function", "function": {"name": "f", "parameters": {}, "strict": True}}]),
        ("tools", [{"type": "custom", "custom": {"name": "f", "format": {"type": "text"}}}]),
        ("tool_choice", "required"),
        ("tool_choice", {"type": "function", "function": {"name": "f"}}),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "s", "schema": {}}}),
        ("response_format", {"type": "json_object"}),
        ("stop", ["a", "b"]),
        ("logit_bias", {"50256": -100}),
        ("seed", 7),
        ("reasoning_effort", "xhigh"),
        ("verbosity", "low"),
        ("prediction", {"type": "content", "content": "x"}),
        ("temperature", None),
        ("modalities", ["text"]),
        ("top_k", 40),
        ("provider", {"order": ["a"]}),
        ("messages", [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "https://x"}}]}]),
        ("messages", [{"role": "assistant", "tool_calls": [CALL]}]),
        ("messages", [{"role": "tool", "tool_call_id": "c", "content": "3"}]),
    ],
)  # fmt: skip
def test_the_chat_dialect_is_taken_whole(field: str, value: Any) -> None:
    assert parse_chat({**CHAT, field: value}).body[field] == value


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "poet", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
         "messages[0].content[0].image_url"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"model": 3}, "model"),
        ({"stream": "true"}, "stream"),
        ({"n": 0}, "n"),
        ({"n": True}, "n"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"max_completion_tokens": "5"}, "max_completion_tokens"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tool_choice": "always"}, "tool_choice"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"modalities": ["text", "audio"]}, "modalities[1]"),
        ({"metadata": {"a": 1}}, "metadata.a"),
    ],
)  # fmt: skip
def test_a_wrong_chat_field_is_named(change: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse_chat({**CHAT, **change})
    assert raised.value.param == raised.value.data["param"] == param
    assert raised.value.kind is Kind.MALFORMED


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"models": ["a", "dear"]}, "models"),
        ({"route": "fallback"}, "route"),
        ({"preset": "dear"}, "preset"),
        ({"plugins": [{"id": "web"}]}, "plugins"),
        ({"fallbacks": ["dear"]}, "fallbacks"),
        ({"context_window_fallbacks": [{"m": ["dear"]}]}, "context_window_fallbacks"),
        ({"content_policy_fallbacks": [{"m": ["dear"]}]}, "content_policy_fallbacks"),
        ({"providerOptions": {"gateway": {"models": ["dear"]}}}, "providerOptions"),
        ({"extra_body": {"models": ["dear"]}}, "extra_body.models"),
        ({"extra_body": {"tools": [{"type": "openrouter:advisor"}]}}, "extra_body.tools[0].type"),
        ({"tools": [{"type": "openrouter:advisor", "parameters": {"model": "dear"}}]}, "tools[0].type"),
        ({"tools": [{"type": "web_search"}, {"type": "image_generation"}]}, "tools[1].type"),
    ],
)
def test_no_other_model_than_the_named_one_is_to_be_had(change: dict[str, Any], param: str) -> None:
    for parse, body in ((parse_chat, CHAT), (parse_responses, RESPONSES)):
        with pytest.raises(InvalidRequest, match="no other") as raised:
            parse({**body, **change})
        assert raised.value.param == param


def test_field_that_selects_no_model_is_passed_on() -> None:
    said: dict[str, Any] = {
        "models": None,
        "plugins": [],
        "extra_body": {"top_k": 3},
        "provider": {"sort": "price"},
    }
    for parse, body in ((parse_chat, CHAT), (parse_responses, RESPONSES)):
        assert parse({**body, **said}).body == {**body, **said}


def test_a_missing_field_is_named() -> None:
    with pytest.raises(InvalidRequest, match="messages is required") as raised:
        parse_chat({"model": "m"})
    assert raised.value.param == "messages"


@pytest.mark.parametrize("body", [None, [], "x", 3])
def test_a_body_that_is_no_object_is_refused(body: Any) -> None:
    with pytest.raises(InvalidRequest):
        parse_chat(body)
    with pytest.raises(InvalidRequest):
        parse_responses(body)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"store": True}, "store"),
        ({"store": None}, "store"),
        ({"store": "false"}, "store"),
        ({"store": 0}, "store"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"conversation": {"id": "conv_1"}}, "conversation"),
        ({"background": True}, "background"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": "x"}, {"id": "msg_1"}]}, "input[1]"),
    ],
)
def test_stateful_responses_are_refused(change: dict[str, Any], param: str) -> None:
    with pytest.raises(ResponseStateNotSupported) as raised:
        parse_responses({**RESPONSES, **change})
    assert raised.value.param == param
    assert raised.value.code == "response_state_not_supported"
    assert raised.value.kind is Kind.MALFORMED


def test_an_absent_store_is_refused_unless_the_operator_reads_it_as_false() -> None:
    absent = {"model": "m", "input": "hi"}
    with pytest.raises(ResponseStateNotSupported, match="store: false"):
        parse_responses(absent)
    assert parse_responses(absent, store_absent_is_false=True).model == "m"
    with pytest.raises(ResponseStateNotSupported):
        parse_responses({**absent, "store": True}, store_absent_is_false=True)


def test_null_state_and_stored_completions() -> None:
    nulls = {"previous_response_id": None, "conversation": None, "background": False}
    assert parse_responses({**RESPONSES, **nulls}).model == "m"
    with pytest.raises(ResponseStateNotSupported):
        parse_chat({**CHAT, "store": True})
    assert parse_chat({**CHAT, "store": False}).model == "m"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input": 3}, "input"),
        ({"input": None}, "input"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ({"input": [{"type": "message", "role": "user"}]}, "input[0].content"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
        ({"text": {"format": {"type": "json_schema", "name": "s"}}}, "text.format.schema"),
        ({"reasoning": "high"}, "reasoning"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"background": "yes"}, "background"),
        ({"truncation": "maybe"}, "truncation"),
    ],
)
def test_a_wrong_responses_field_is_named(change: dict[str, Any], param: str) -> None:
    with pytest.raises((InvalidRequest, ResponseStateNotSupported)) as raised:
        parse_responses({**RESPONSES, **change})
    assert raised.value.param == param


def test_prompts_are_estimated_by_text_pictures_and_tools() -> None:
    plain = estimate_prompt_tokens(
        parse_chat({**CHAT, "messages": [{"role": "user", "content": "word " * 400}]})
    )
    assert 450 < plain < 600
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1_000_000}}
    shown = estimate_prompt_tokens(parse_chat({**CHAT, "messages": [{"role": "user", "content": [picture]}]}))
    assert 1_000 < shown < 1_300
    tool = {"type": "function", "name": "f", "parameters": {"p" * 400: {}}}
    assert estimate_prompt_tokens(parse_responses({**RESPONSES, "tools": [tool]})) > 100
    cjk = estimate_prompt_tokens(parse_responses({**RESPONSES, "input": "天" * 400}))
    assert 300 <= cjk <= 420
