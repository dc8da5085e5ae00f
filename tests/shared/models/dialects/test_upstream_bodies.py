"""Request bodies for upstreams, in their own dialect."""

from typing import Any

import pytest

from shared.models.dialects import Dialect, parse_chat, parse_responses, upstream_body
from shared.models.errors import InvalidRequest

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
RESPONSES: dict[str, Any] = {"model": "m", "store": False, "input": "hi"}
SCHEMA = {"name": "s", "schema": {"type": "object"}, "strict": True}
FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}


def ask_responses(**fields: Any) -> dict[str, Any]:
    return upstream_body(parse_chat({**CHAT, **fields}), Dialect.RESPONSES, "up")


def ask_chat(**fields: Any) -> dict[str, Any]:
    return upstream_body(parse_responses({**RESPONSES, **fields}), Dialect.CHAT, "up")


USAGE = {"stream_options": {"include_usage": True}}


def test_a_stream_is_asked_for_with_usage() -> None:
    given = {**CHAT, "top_k": 4, "seed": None, "store": False, "stream": True}
    body = upstream_body(parse_chat(given), Dialect.CHAT, "up")
    assert body == {**CHAT, "model": "up", "top_k": 4, "stream": True, **USAGE}
    body = upstream_body(
        parse_responses({**RESPONSES, "user": None, "stream": True}), Dialect.RESPONSES, "up"
    )
    assert body == {**RESPONSES, "model": "up", "stream": True}


def test_a_whole_reply_is_asked_for_whole_without_options_of_a_stream() -> None:
    given = {**CHAT, "stream": False, "stream_options": {"include_usage": True}}
    body = upstream_body(parse_chat(given), Dialect.CHAT, "up")
    assert body == {**CHAT, "model": "up", "stream": False}
    given = {**RESPONSES, "stream_options": {"include_obfuscation": False}}
    body = upstream_body(parse_responses(given), Dialect.RESPONSES, "up")
    assert body == {**RESPONSES, "model": "up", "stream": False}
    assert ask_chat()["stream"] is ask_responses()["stream"] is False
    assert "stream_options" not in ask_chat()


def test_an_upstream_that_only_streams_is_asked_to() -> None:
    body = upstream_body(parse_chat(CHAT), Dialect.CHAT, "up", streams_only=True)
    assert (body["stream"], body["stream_options"]) == (True, USAGE["stream_options"])
    assert upstream_body(parse_responses(RESPONSES), Dialect.CHAT, "up", streams_only=True)["stream"] is True
    body = upstream_body(parse_responses(RESPONSES), Dialect.RESPONSES, "up", streams_only=True)
    assert body == {**RESPONSES, "model": "up", "stream": True}


def test_the_request_itself_is_left_as_it_was() -> None:
    given = {**CHAT, "stream_options": {"include_usage": False}, "stream": True}
    upstream_body(parse_chat(given), Dialect.CHAT, "up")
    assert given["stream_options"] == {"include_usage": False}
    assert given["model"] == "m"


def test_chat_conversation_becomes_items() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    picture = {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}}
    body = ask_responses(
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Look."}, picture]},
            {"role": "assistant", "content": "Wait.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "7"},
        ]
    )
    assert body["input"] == [
        {"type": "message", "role": "system", "content": "Be brief."},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Look."},
                {"type": "input_image", "image_url": "https://x/y.png", "detail": "low"},
            ],
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Wait.", "annotations": []}],
        },
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "7"},
    ]
    assert body["store"] is False
    assert "messages" not in body


def test_chat_options_become_responses_options() -> None:
    body = ask_responses(
        max_completion_tokens=9,
        reasoning_effort="low",
        verbosity="high",
        response_format={"type": "json_schema", "json_schema": SCHEMA},
        tools=[{"type": "function", "function": FUNCTION}],
        tool_choice={"type": "function", "function": {"name": "f"}},
        logprobs=True,
        top_logprobs=2,
        temperature=0.5,
        seed=3,
        n=1,
    )
    assert body["max_output_tokens"] == 9
    assert body["reasoning"] == {"effort": "low"}
    assert body["text"] == {"format": {"type": "json_schema", **SCHEMA}, "verbosity": "high"}
    assert body["tools"] == [{"type": "function", **FUNCTION}]
    assert body["tool_choice"] == {"type": "function", "name": "f"}
    assert (body["include"], body["top_logprobs"]) == (["message.output_text.logprobs"], 2)
    assert body["temperature"] == 0.5
    assert not {"seed", "n", "stream_options", "logprobs"} & set(body)


@pytest.mark.parametrize(
    "fields", [{"n": 2}, {"stop": "x"}, {"logit_bias": {"1": 1}}, {"functions": [{"name": "f"}]}]
)
def test_field_unsupported_by_responses_is_refused_by_name(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as raised:
        ask_responses(**fields)
    assert raised.value.param == next(iter(fields))


def test_items_become_a_chat_conversation() -> None:
    body = ask_chat(
        instructions="Be brief.",
        input=[
            {"role": "developer", "content": "Really."},
            {"role": "user", "content": [{"type": "input_text", "text": "Look."}, {"type": "input_image", "image_url": "https://x"}]},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Wait."}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "d", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "7"},
            {"type": "function_call_output", "call_id": "d", "output": [{"type": "input_text", "text": "8"}]},
        ],
    )  # fmt: skip
    called = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "system", "content": "Really."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look."},
                {"type": "image_url", "image_url": {"url": "https://x"}},
            ],
        },
        {
            "role": "assistant",
            "content": "Wait.",
            "tool_calls": [{"id": "c", **called}, {"id": "d", **called}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "7"},
        {"role": "tool", "tool_call_id": "d", "content": [{"type": "text", "text": "8"}]},
    ]
    assert not {"input", "store", "instructions"} & set(body)


def test_responses_options_become_chat_options() -> None:
    fields = {
        "max_output_tokens": 9,
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {"type": "json_schema", **SCHEMA}, "verbosity": "high"},
        "tools": [{"type": "function", **FUNCTION}],
        "tool_choice": {"type": "function", "name": "f"},
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 2,
        "metadata": {"a": "b"},
        "truncation": "auto",
        "top_k": 3,
    }
    body = ask_chat(**fields)
    assert body["max_completion_tokens"] == 9
    assert (body["reasoning_effort"], body["verbosity"]) == ("low", "high")
    assert body["response_format"] == {"type": "json_schema", "json_schema": SCHEMA}
    assert body["tools"] == [{"type": "function", "function": FUNCTION}]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert (body["logprobs"], body["top_logprobs"], body["top_k"]) == (True, 2, 3)
    assert not {"metadata", "truncation", "text", "reasoning", "include"} & set(body)
    parsed = parse_responses({**RESPONSES, **fields})
    assert upstream_body(parsed, Dialect.CHAT, "up", limit_field="max_tokens")["max_tokens"] == 9


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "file_search"}}, "tool_choice"),
        ({"input": [{"type": "computer_call", "id": "x"}]}, "input[0].type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
            "input[0].content[0].file_id",
        ),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
    ],
)
def test_field_unsupported_by_chat_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        ask_chat(**fields)
    assert raised.value.param == param
