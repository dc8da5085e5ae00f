"""The cases of the Open Responses suite, with and without a model that reasons, over upstreams of both dialects."""

from typing import Any

import pytest

from shared.models.dialects import Dialect, parse_responses
from tests.shared.models.dialects.conftest import stream_of
from tests.shared.models.dialects.open_responses import faults_of_event, faults_of_response
from tests.shared.models.dialects.serving import MODEL, Script, read_frames, relay
from tests.shared.models.dialects.upstreams import Json, Reply, response_events

PICTURE = "data:image/png;base64,iVBORw0KGgo="
DOCUMENT = "data:application/pdf;base64,JVBERi0xLjQK"
WEATHER: Json = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
    },
}
SAID: Json = {"text": ["Ahoy ", "there."]}
CALLED: Json = {"calls": [("call_1", "get_weather", ['{"location":', ' "San Francisco, CA"}'])]}
CALL: Json = {
    "type": "function_call",
    "call_id": "call_1",
    "name": "get_weather",
    "arguments": '{"location": "San Francisco, CA"}',
}


def message(role: str, content: Any) -> Json:
    return {"type": "message", "role": role, "content": content}


def asked_with(part: Json) -> Json:
    return {"input": [message("user", [{"type": "input_text", "text": "What is this?"}, part])]}


CASES: dict[str, tuple[Json, Json]] = {
    "basic": ({"input": [message("user", "Say hello in exactly 3 words.")]}, SAID),
    "streaming": ({"input": [message("user", "Count from 1 to 5.")], "stream": True}, SAID),
    "system prompt": (
        {"input": [message("system", "You are a pirate."), message("user", "Say hello.")]},
        SAID,
    ),
    "tool calling": ({"input": [message("user", "What is the weather?")], "tools": [WEATHER]}, CALLED),
    "tool calling, streaming": (
        {"input": [message("user", "What is the weather?")], "tools": [WEATHER], "stream": True},
        CALLED,
    ),
    "function call round trip": (
        {
            "input": [
                message("user", "What is the weather?"),
                CALL,
                {"type": "function_call_output", "call_id": "call_1", "output": '{"degrees": 18}'},
            ],
            "tools": [WEATHER],
        },
        SAID,
    ),
    "image input": (asked_with({"type": "input_image", "image_url": PICTURE}), SAID),
    "file input": (asked_with({"type": "input_file", "filename": "a.pdf", "file_data": DOCUMENT}), SAID),
    "multi-turn": (
        {
            "input": [
                message("user", "My name is Alice."),
                message("assistant", "Hello Alice!"),
                message("user", "What is my name?"),
            ]
        },
        SAID,
    ),
}


@pytest.mark.parametrize("reasoning", [(), ("Let me ", "think.")], ids=["plain", "reasoning"])
@pytest.mark.parametrize("case", CASES)
def test_the_suite_finds_no_fault(script: Script, case: str, reasoning: tuple[str, ...]) -> None:
    asked, said = CASES[case]
    parsed = parse_responses({"model": MODEL, "store": False, **asked})
    translator, frames = relay(
        parsed,
        script.upstream,
        stream_of(script, Reply(**said, reasoning=reasoning)),
        received_done_marker=True,
    )
    response = translator.result()
    events = read_frames(frames) if parsed.is_stream else []
    assert [fault for event in events for fault in faults_of_event(event)] == []
    assert faults_of_response(response) == []
    assert response["status"] == "completed"
    kinds = [item["type"] for item in response["output"]]
    assert kinds == [*(["reasoning"] if reasoning else []), "function_call" if said is CALLED else "message"]
    if events:
        assert events[-1]["response"] == response


def test_reasoning_stream_has_reasoning_deltas() -> None:
    script = Script(upstream=Dialect.CHAT)
    parsed = parse_responses({"model": MODEL, "store": False, "input": "Hm?", "stream": True})
    events = stream_of(script, Reply(text=["Yes."], reasoning=["Let me ", "think."]))
    _, frames = relay(parsed, Dialect.CHAT, events, received_done_marker=True)
    said = [e["delta"] for e in read_frames(frames) if e["type"] == "response.reasoning_text.delta"]
    assert said == ["Let me ", "think."]


def test_a_null_that_an_upstream_sends_is_left_out() -> None:
    parsed = parse_responses({"model": MODEL, "store": False, "input": "Hm?", "stream": True})
    events = response_events(Reply(text=["Yes."], reasoning=["Hm."]))
    reasoned = [event["item"] for event in events if event.get("item", {}).get("type") == "reasoning"]
    for item in [*reasoned, events[-1]["response"]["output"][0]]:
        item["encrypted_content"] = None
    _, frames = relay(parsed, Dialect.RESPONSES, events)
    assert [fault for event in read_frames(frames) for fault in faults_of_event(event)] == []


def test_the_shapes_refuse_what_the_suite_refuses() -> None:
    script = Script(upstream=Dialect.CHAT)
    parsed = parse_responses({"model": MODEL, "store": False, "input": "Hm?"})
    translator, _ = relay(
        parsed,
        Dialect.CHAT,
        stream_of(script, Reply(text=["Yes."], reasoning=["Hm."])),
        received_done_marker=True,
    )
    response = translator.result()
    response["output"][0]["encrypted_content"] = None
    assert faults_of_response(response) != []
    assert faults_of_event({"type": "response.thought.delta"}) != []
