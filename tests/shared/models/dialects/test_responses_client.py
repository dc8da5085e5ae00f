"""Responses as the official client reads them, over upstreams of both dialects."""

from typing import Any

import pytest
from openai import APIError, OpenAI
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseStreamEvent
from pydantic import BaseModel

from shared.models.dialects import Dialect
from tests.shared.models.dialects.conftest import stream_of
from tests.shared.models.dialects.serving import CREATED, MODEL, Script, read_frames
from tests.shared.models.dialects.upstreams import Reply

ASK: dict[str, Any] = {"model": MODEL, "store": False, "input": "What is the weather?"}
TOOL: Any = {
    "type": "function",
    "name": "weather",
    "description": "Look outside.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
LOGPROB = {
    "token": "Hi",
    "bytes": [72, 105],
    "logprob": -0.1,
    "top_logprobs": [{"token": "Hi", "bytes": [72, 105], "logprob": -0.1}],
}
RESPONSE_KEYS = frozenset({
    "id", "object", "created_at", "completed_at", "status", "incomplete_details", "model", "previous_response_id",
    "instructions", "output", "error", "tools", "tool_choice", "truncation", "parallel_tool_calls", "text", "top_p",
    "presence_penalty", "frequency_penalty", "top_logprobs", "temperature", "reasoning", "usage", "max_output_tokens",
    "max_tool_calls", "store", "background", "service_tier", "metadata", "safety_identifier", "prompt_cache_key",
})  # fmt: skip


class Weather(BaseModel):
    """A structured reply."""

    city: str
    degrees: int


def test_a_response_is_read_whole(client: OpenAI, script: Script) -> None:
    script.events = stream_of(script, Reply(text=["Mild ", "and dry."]))
    response = client.responses.create(**ASK, tools=[TOOL], metadata={"trace": "1"}, instructions="Be brief.")
    assert response.output_text == "Mild and dry."
    assert (response.status, response.model, response.created_at) == ("completed", MODEL, CREATED)
    assert response.completed_at == CREATED + 2
    assert response.id == "resp_01935b2a000070008000000000000001"
    assert response.metadata == {"trace": "1"}
    assert response.instructions == "Be brief."
    assert response.to_dict()["store"] is False
    assert response.usage is not None
    assert response.usage.input_tokens_details.cached_tokens == 4
    assert response.usage.input_tokens_details.cache_write_tokens == 0
    assert response.usage.output_tokens_details.reasoning_tokens == 2
    assert set(response.to_dict()) >= RESPONSE_KEYS


def test_every_event_of_a_raw_stream_is_complete_and_in_order(client: OpenAI, script: Script) -> None:
    script.events = stream_of(script, Reply(reasoning=["Hm."], text=["Mild ", "and dry."]))
    with client.responses.create(**ASK, stream=True) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"
    for event in read_frames(script.frames):
        if "response" in event:
            assert set(event["response"]) >= RESPONSE_KEYS
    kinds = [event.type for event in events if event.type.startswith(("response.output", "response.content"))]
    message = kinds[
        kinds.index("response.content_part.added", kinds.index("response.output_item.done")) - 1 :
    ]
    assert message == [
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
    ]


def test_the_stream_helper_gives_the_final_response(client: OpenAI, script: Script) -> None:
    script.events = stream_of(script, Reply(text=["Mild ", "and ", "dry."]))
    with client.responses.stream(**ASK) as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
        response = stream.get_final_response()
    assert snapshots == ["Mild ", "Mild and ", "Mild and dry."]
    assert response.output_text == "Mild and dry."
    assert response.usage is not None
    assert response.usage.total_tokens == 18


def test_the_stream_helper_parses_structured_output(client: OpenAI, script: Script) -> None:
    script.events = stream_of(script, Reply(text=['{"city": "Oslo", ', '"degrees": 7}']))
    with client.responses.stream(**ASK, text_format=Weather) as stream:
        response = stream.get_final_response()
    assert response.output_parsed == Weather(city="Oslo", degrees=7)
    asked = script.asked
    form = (
        asked["text"]["format"]
        if script.upstream is Dialect.RESPONSES
        else asked["response_format"]["json_schema"]
    )
    assert form["schema"]["required"] == ["city", "degrees"]


def test_function_calls_arrive_with_their_ids(client: OpenAI, script: Script) -> None:
    calls = [("call_a", "weather", ['{"city": ', '"Oslo"}']), ("call_b", "weather", ['{"city": "Rome"}'])]
    script.events = stream_of(script, Reply(text=["Let me look."], calls=calls))
    with client.responses.stream(**ASK, tools=[TOOL]) as stream:
        snapshots = [
            event.snapshot for event in stream if event.type == "response.function_call_arguments.delta"
        ]
        response = stream.get_final_response()
    assert snapshots[:2] == ['{"city": ', '{"city": "Oslo"}']
    message, *found = response.output
    assert isinstance(message, ResponseOutputMessage)
    assert [(c.call_id, c.arguments) for c in found if isinstance(c, ResponseFunctionToolCall)] == [
        ("call_a", '{"city": "Oslo"}'),
        ("call_b", '{"city": "Rome"}'),
    ]


def test_a_refusal_arrives_as_a_part(client: OpenAI, script: Script) -> None:
    script.events = stream_of(script, Reply(refusal=["I will ", "not."]))
    with client.responses.stream(**ASK) as stream:
        message = stream.get_final_response().output[0]
    assert isinstance(message, ResponseOutputMessage)
    assert message.content[0].to_dict() == {"type": "refusal", "refusal": "I will not."}


def test_reasoning_becomes_an_item_before_the_message(client: OpenAI, script: Script) -> None:
    script.events = stream_of(script, Reply(reasoning=["Looking ", "outside."], text=["Mild."]))
    response = client.responses.create(**ASK, reasoning={"effort": "low"})
    reasoning, message = (item.to_dict() for item in response.output)
    assert (reasoning["type"], message["type"]) == ("reasoning", "message")
    parts: Any = reasoning.get("content") or reasoning["summary"]
    assert parts[0]["text"] == "Looking outside."


def test_log_probabilities_arrive(client: OpenAI, script: Script) -> None:
    script.events = stream_of(script, Reply(text=["Hi"], logprobs=[LOGPROB]))
    with client.responses.create(
        **ASK, stream=True, top_logprobs=1, include=["message.output_text.logprobs"]
    ) as stream:
        deltas = [event for event in stream if event.type == "response.output_text.delta"]
    assert deltas[0].logprobs[0].logprob == -0.1


def test_a_cut_reply_is_incomplete(client: OpenAI, script: Script) -> None:
    script.events = stream_of(script, Reply(text=["And then"], finish="length"))
    with client.responses.create(**ASK, stream=True) as stream:
        last = list(stream)[-1]
    assert last.type == "response.incomplete"
    assert last.response.incomplete_details is not None
    assert last.response.incomplete_details.reason == "max_output_tokens"


def test_a_stream_that_breaks_off_raises_after_the_failed_response(client: OpenAI, script: Script) -> None:
    script.events = stream_of(script, Reply(text=["a", "b"]))[:-2]
    seen: list[ResponseStreamEvent] = []
    stream = client.responses.create(**ASK, stream=True)
    with pytest.raises(APIError, match="before the reply was complete") as raised:
        seen.extend(stream)
    assert raised.value.code == "provider_error"
    assert seen[-1].type == "response.failed"
    assert seen[-1].response.error is not None
    assert seen[-1].response.error.code == "server_error"
