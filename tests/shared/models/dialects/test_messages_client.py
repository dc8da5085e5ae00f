"""Messages as Anthropic's client reads them, over upstreams of both dialects."""

from typing import Any

import pytest
from anthropic import Anthropic, APIStatusError
from anthropic.types import ToolUseBlock

from shared.models.dialects import Dialect, parse_messages
from tests.shared.models.dialects.conftest import stream_of
from tests.shared.models.dialects.serving import MODEL, Script, read_events, relay
from tests.shared.models.dialects.upstreams import Reply, chunk, usage_chunk

ASK: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "What is the weather?"}],
}
TOOL: Any = {
    "name": "weather",
    "description": "Look outside.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
BERGEN = [("call_1", "weather", ['{"city": ', '"Bergen"}'])]
THINKING: Any = {"type": "enabled", "budget_tokens": 2048}


def test_a_message_is_read_whole(messages_client: Anthropic, script: Script) -> None:
    script.events = stream_of(script, Reply(text=["Mild ", "and dry."]))
    message = messages_client.messages.create(**ASK)
    assert [(block.type, getattr(block, "text", None)) for block in message.content] == [
        ("text", "Mild and dry.")
    ]
    assert (message.id, message.type, message.role, message.model) == (
        "msg_01935b2a000070008000000000000001",
        "message",
        "assistant",
        MODEL,
    )
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)


def test_usage_excludes_cached_tokens(messages_client: Anthropic, script: Script) -> None:
    script.events = stream_of(script, Reply(text=["Mild."]))
    usage = messages_client.messages.create(**ASK).usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (7, 4, 0)
    assert usage.output_tokens == 7
    assert usage.output_tokens_details is not None
    assert usage.output_tokens_details.thinking_tokens == 2


def test_every_event_of_a_raw_stream_is_in_order(messages_client: Anthropic, script: Script) -> None:
    script.events = stream_of(script, Reply(text=["Mild ", "and dry."]))
    with messages_client.messages.create(**ASK, stream=True) as stream:
        kinds = [event.type for event in stream]
    assert kinds == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_the_helper_assembles_the_stream(messages_client: Anthropic, script: Script) -> None:
    script.events = stream_of(
        script, Reply(reasoning=["Let me ", "look."], text=["Mild ", "and dry."], calls=BERGEN)
    )
    with messages_client.messages.stream(**ASK, tools=[TOOL], thinking=THINKING) as stream:
        text = "".join(stream.text_stream)
        streamed = stream.get_final_message()
    assert text == "Mild and dry."
    whole = messages_client.messages.create(**ASK, tools=[TOOL], thinking=THINKING)
    assert streamed.to_dict(exclude_none=True) == whole.to_dict(exclude_none=True)
    assert [block.type for block in whole.content] == ["thinking", "text", "tool_use"]
    assert whole.stop_reason == "tool_use"
    assert whole.content[2].to_dict() == {
        "type": "tool_use",
        "id": "call_1",
        "name": "weather",
        "input": {"city": "Bergen"},
    }
    assert streamed.usage.input_tokens == 7


def test_thoughts_are_returned_if_requested(messages_client: Anthropic, script: Script) -> None:
    script.events = stream_of(script, Reply(reasoning=["Hm."], text=["Mild."]))
    assert [block.type for block in messages_client.messages.create(**ASK).content] == ["text"]
    omitted: Any = {"type": "adaptive", "display": "omitted"}
    hidden = messages_client.messages.create(**ASK, thinking=omitted)
    assert [block.type for block in hidden.content] == ["text"]
    shown = messages_client.messages.create(**ASK, thinking={"type": "adaptive"})
    assert shown.content[0].to_dict() == {"type": "thinking", "thinking": "Hm.", "signature": ""}


@pytest.mark.parametrize(
    ("finish", "reason"), [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal")]
)
def test_the_reason_to_stop_is_translated(
    messages_client: Anthropic, script: Script, finish: str, reason: str
) -> None:
    script.events = stream_of(script, Reply(text=["Mild."], finish=finish))
    assert messages_client.messages.create(**ASK).stop_reason == reason
    with messages_client.messages.stream(**ASK) as stream:
        assert stream.get_final_message().stop_reason == reason


def test_a_refusal_is_text_and_a_reason(messages_client: Anthropic, script: Script) -> None:
    script.events = stream_of(script, Reply(refusal=["I would ", "rather not."]))
    message = messages_client.messages.create(**ASK)
    assert [block.to_dict() for block in message.content] == [{"type": "text", "text": "I would rather not."}]
    assert message.stop_reason == "refusal"


def test_tool_call_without_arguments_has_an_empty_object(messages_client: Anthropic, script: Script) -> None:
    script.events = stream_of(script, Reply(calls=[("call_1", "weather", [])]))
    with messages_client.messages.stream(**ASK, tools=[TOOL]) as stream:
        streamed = stream.get_final_message().content[0]
    whole = messages_client.messages.create(**ASK, tools=[TOOL]).content[0]
    assert isinstance(streamed, ToolUseBlock)
    assert isinstance(whole, ToolUseBlock)
    assert streamed.input == whole.input == {}


def test_a_stream_that_breaks_is_raised(messages_client: Anthropic, script: Script) -> None:
    script.events = stream_of(script, Reply(text=["Mild ", "and dry."]))[:-3]
    with (
        messages_client.messages.create(**ASK, stream=True) as stream,
        pytest.raises(APIStatusError) as raised,
    ):
        list(stream)
    assert isinstance(raised.value.body, dict)
    assert raised.value.body["type"] == "error"
    assert raised.value.body["error"]["type"] == "api_error"
    assert raised.value.body["error"]["code"] == "provider_error"
    assert not any(b"message_stop" in frame for frame in script.frames)


def call(index: int, text: str, **opened: Any) -> dict[str, Any]:
    function = {"name": opened.pop("name"), "arguments": text} if opened else {"arguments": text}
    return chunk({"tool_calls": [{"index": index, **opened, "function": function}]})


def test_interleaved_calls_become_consecutive_blocks() -> None:
    parsed = parse_messages({**ASK, "stream": True})
    events = [
        chunk({"role": "assistant", "content": ""}),
        call(0, "", id="a", type="function", name="f"),
        call(1, "", id="b", type="function", name="g"),
        call(0, '{"x"'),
        call(1, '{"y"'),
        chunk({"content": "Soon."}),
        call(0, ": 1}"),
        call(1, ": 2}"),
        chunk({}, "tool_calls"),
        usage_chunk(),
    ]
    translator, frames = relay(parsed, Dialect.CHAT, events)
    told = [
        (event["type"].removeprefix("content_block_"), event.get("index")) for event in read_events(frames)
    ]
    blocks = [step for step in told if step[1] is not None]
    assert blocks == [
        ("start", 0), ("delta", 0), ("delta", 0), ("stop", 0),
        ("start", 1), ("delta", 1), ("delta", 1), ("stop", 1),
        ("start", 2), ("delta", 2), ("stop", 2),
    ]  # fmt: skip
    assert [block.get("input", block.get("text")) for block in translator.result()["content"]] == [
        {"x": 1},
        {"y": 2},
        "Soon.",
    ]


def test_arguments_that_are_not_an_object_are_kept_as_text() -> None:
    events = stream_of(Script(upstream=Dialect.CHAT), Reply(calls=[("call_1", "weather", ["[1, 2"])]))
    translator, _ = relay(parse_messages(ASK), Dialect.CHAT, events)
    assert translator.result()["content"][0]["input"] == {"INVALID_JSON": "[1, 2"}


def test_the_sequence_that_stopped_it_is_named_where_the_upstream_names_it() -> None:
    parsed = parse_messages({**ASK, "stop_sequences": ["END"]})
    end = chunk({}, "stop")
    end["choices"][0]["stop_reason"] = "END"
    events = [chunk({"role": "assistant", "content": "Mild."}), end, usage_chunk()]
    translator, _ = relay(parsed, Dialect.CHAT, events)
    assert translator.result()["stop_reason"] == "stop_sequence"
    assert translator.result()["stop_sequence"] == "END"


def test_first_event_has_an_estimate_and_the_last_the_usage() -> None:
    parsed = parse_messages({**ASK, "system": "a" * 400, "stream": True})
    _, frames = relay(parsed, Dialect.CHAT, stream_of(Script(), Reply(text=["Mild."])))
    first, *_, last, _stop = read_events(frames)
    assert first["message"]["usage"]["input_tokens"] > 100
    assert last["usage"]["input_tokens"] == 7
