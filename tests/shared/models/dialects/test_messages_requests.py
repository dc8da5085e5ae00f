"""Translation of Messages requests to each upstream dialect, and refusals."""

import hashlib
from typing import Any

import pytest

from shared.models.dialects import (
    Dialect,
    estimate_prompt_tokens,
    parse_messages,
    parse_prompt,
    upstream_body,
)
from shared.models.errors import InvalidRequest
from tests.shared.models.dialects.upstreams import Json

BODY: Json = {"model": "m", "max_tokens": 64, "messages": [{"role": "user", "content": "Hi"}]}
PICTURE: Json = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
DOCUMENT: Json = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
    "title": "Report",
}
CALL: Json = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Bergen"}}


def chat(**members: Any) -> Json:
    return upstream_body(parse_messages({**BODY, **members}), Dialect.CHAT, "up", limit_field="max_tokens")


def responses(**members: Any) -> Json:
    return upstream_body(parse_messages({**BODY, **members}), Dialect.RESPONSES, "up")


def said(*content: Json) -> list[Json]:
    return [{"role": "user", "content": list(content)}]


def result(content: Any = None, **members: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": "t1", "content": content, **members}


def refused(**members: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as raised:
        parse_messages({**BODY, **members})
    return raised.value


def test_messages_options_become_chat_options() -> None:
    asked = chat(
        system="Be brief.",
        temperature=1,
        top_p=0.5,
        top_k=4,
        stop_sequences=["END"],
        metadata={"user_id": "u-1"},
        service_tier="standard_only",
        output_config={"effort": "max", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        stream=True,
    )
    assert asked == {
        "model": "up",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "max_tokens": 64,
        "temperature": 1,
        "top_p": 0.5,
        "top_k": 4,
        "stop": ["END"],
        "user": "u-1",
        "service_tier": "default",
        "reasoning_effort": "xhigh",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
        },
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_messages_options_become_responses_options() -> None:
    asked = responses(
        system=[{"type": "text", "text": "Be brief."}], thinking={"type": "enabled", "budget_tokens": 9000}
    )
    assert asked == {
        "model": "up",
        "input": [
            {"type": "message", "role": "system", "content": "Be brief."},
            {"type": "message", "role": "user", "content": "Hi"},
        ],
        "max_output_tokens": 64,
        "reasoning": {"effort": "medium"},
        "stream": False,
        "store": False,
    }


@pytest.mark.parametrize(
    ("choice", "expected", "parallel"),
    [
        ({"type": "auto"}, "auto", None),
        ({"type": "any", "disable_parallel_tool_use": True}, "required", False),
        ({"type": "tool", "name": "weather"}, {"type": "function", "function": {"name": "weather"}}, None),
        ({"type": "none"}, "none", None),
    ],
)
def test_tools_and_their_choice_are_functions(choice: Json, expected: Any, parallel: bool | None) -> None:
    tool = {
        "name": "weather",
        "description": "Look.",
        "input_schema": {"type": "object"},
        "cache_control": {},
    }
    asked = chat(tools=[tool], tool_choice=choice)
    function = {"name": "weather", "description": "Look.", "parameters": {"type": "object"}}
    assert asked["tools"] == [{"type": "function", "function": function}]
    assert asked["tool_choice"] == expected
    assert asked.get("parallel_tool_calls") is parallel


def test_a_conversation_with_tools_keeps_its_order() -> None:
    turns = [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                {"type": "text", "text": "I look."},
                CALL,
            ],
        },
        {"role": "user", "content": [result("rain"), {"type": "text", "text": "And?"}]},
    ]
    calling = {
        "id": "t1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city": "Bergen"}'},
    }
    assert chat(messages=turns)["messages"] == [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [calling]},
        {"role": "tool", "tool_call_id": "t1", "content": "rain"},
        {"role": "user", "content": "And?"},
    ]
    assert [item.get("type") for item in responses(messages=turns)["input"]] == [
        "message", "message", "function_call", "function_call_output", "message",
    ]  # fmt: skip


def test_failed_tool_result_is_marked_as_error() -> None:
    assert chat(messages=said(result("no such city", is_error=True)))["messages"][0]["content"] == (
        "Error: no such city"
    )
    assert chat(messages=said(result(is_error=True)))["messages"][0]["content"] == "Error: "


def test_pictures_are_passed_on() -> None:
    by_address = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    content = chat(messages=said({"type": "text", "text": "What?"}, PICTURE, by_address))["messages"][0][
        "content"
    ]
    assert content == [
        {"type": "text", "text": "What?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ]


def test_image_of_a_tool_result_follows_in_chat_and_stays_in_responses() -> None:
    turns = said(result([{"type": "text", "text": "a map"}, PICTURE]), {"type": "text", "text": "Where?"})
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    assert chat(messages=turns)["messages"] == [
        {"role": "tool", "tool_call_id": "t1", "content": "a map"},
        {"role": "user", "content": [picture, {"type": "text", "text": "Where?"}]},
    ]
    assert chat(messages=said(result([PICTURE])))["messages"][1] == {"role": "user", "content": [picture]}
    output = responses(messages=turns)["input"][0]["output"]
    assert [part["type"] for part in output] == ["input_text", "input_image"]


def test_documents_are_passed_on_as_far_as_upstreams_take_them() -> None:
    file = {"filename": "document.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}
    assert chat(messages=said(DOCUMENT))["messages"][0]["content"] == [
        {"type": "text", "text": "Report"},
        {"type": "file", "file": file},
    ]
    text = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Once."}}
    assert chat(messages=said(text))["messages"][0]["content"] == "Once."
    by_address = {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}}
    assert responses(messages=said(by_address))["input"][0]["content"] == [
        {"type": "input_file", "file_url": "https://example.org/a.pdf"}
    ]
    with pytest.raises(InvalidRequest, match="by URL"):
        chat(messages=said(by_address))


def test_long_user_name_is_replaced_by_its_digest() -> None:
    name = "user_" + "x" * 100
    assert chat(metadata={"user_id": name})["user"] == hashlib.sha256(name.encode()).hexdigest()


def test_stop_sequences_are_refused_for_responses_upstreams() -> None:
    with pytest.raises(InvalidRequest) as raised:
        responses(stop_sequences=["END"])
    assert raised.value.param == "stop_sequences"


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 1.5}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "Hi"}]}, "messages.0"),
        ({"messages": said({"type": "text"})}, "messages.0.content.0.text"),
        ({"messages": said({"type": "text", "text": "Hi", "colour": 1})}, "messages.0.content.0.colour"),
        ({"messages": said({"type": "search_result"})}, "messages.0.content.0"),
        ({"messages": said({"type": "image", "source": {"type": "file"}})}, "messages.0.content.0.source"),
        (
            {"messages": said({**DOCUMENT, "citations": {"enabled": True}})},
            "messages.0.content.0.citations.enabled",
        ),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
        ({"messages": [*BODY["messages"], {"role": "assistant", "content": "It is"}]}, "messages.1.role"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools.0.type"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"container": "c"}, "container"),
        ({"mcp_servers": []}, "mcp_servers"),
        (
            {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
            "context_management.edits.0.type",
        ),
        ({"metadata": {"user_id": 5}}, "metadata.user_id"),
    ],
)
def test_invalid_or_unsupported_field_is_named(members: Json, param: str) -> None:
    error = refused(**members)
    assert error.param == param
    assert error.detail.startswith(f"{param}: ") or param.endswith(".role")


def test_prompt_count_needs_no_limit_and_allows_a_prefilled_reply() -> None:
    prompt = {"model": "m", "messages": [*BODY["messages"], {"role": "assistant", "content": "It is"}]}
    assert parse_prompt(prompt).max_output_tokens is None
    with pytest.raises(InvalidRequest, match="max_tokens: is not supported here"):
        parse_prompt({**prompt, "max_tokens": 5})


def test_the_estimate_counts_text_pictures_documents_and_tools() -> None:
    def count(**members: Any) -> int:
        return estimate_prompt_tokens(parse_messages({**BODY, **members}))

    plain = count()
    assert count(system="a" * 400) >= plain + 100
    assert count(messages=said(PICTURE)) >= plain + 1_000
    large = {**DOCUMENT, "source": {**DOCUMENT["source"], "data": "a" * 64_000}}
    assert plain + 1_000 <= count(messages=said(large)) < plain + 1_200
    assert count(tools=[{"name": "weather", "input_schema": {"description": "a" * 400}}]) >= plain + 100
