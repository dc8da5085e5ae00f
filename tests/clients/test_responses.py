"""Responses through OpenAI's client, over upstreams of both dialects."""

import json
from typing import Any

import openai
import pytest

from tests.clients.samples import WEATHER_FUNCTION, City

WEATHER: Any = {"type": "function", **WEATHER_FUNCTION}


def test_a_response_is_created(client: openai.OpenAI, model: str) -> None:
    made = client.responses.create(model=model, input="hello there", store=False)
    assert (made.object, made.status, made.model) == ("response", "completed", model)
    assert made.output_text == "You said: hello there"
    assert made.id.startswith("resp_")
    assert made.usage is not None
    assert (made.usage.input_tokens, made.usage.output_tokens, made.usage.total_tokens) == (2, 4, 6)
    assert made.to_dict()["store"] is False


def test_the_whole_conversation_is_sent_each_time(client: openai.OpenAI, model: str) -> None:
    first = client.responses.create(model=model, input=[{"role": "user", "content": "one"}], store=False)
    context: list[Any] = [{"role": "user", "content": "one"}]
    context += [item.to_dict() for item in first.output]
    context += [{"role": "user", "content": "two"}]
    second = client.responses.create(model=model, input=context, instructions="Be brief.", store=False)
    assert second.output_text == "You said: two"
    assert second.instructions == "Be brief."


def test_every_answer_passes_the_clients_strict_validation(strict_client: openai.OpenAI, model: str) -> None:
    made = strict_client.responses.create(model=model, input="hello", store=False)
    assert made.output_text == "You said: hello"
    with strict_client.responses.create(model=model, input="hello", store=False, stream=True) as stream:
        assert [event.type for event in stream][-1] == "response.completed"


def test_a_limit_leaves_the_response_incomplete(client: openai.OpenAI, model: str) -> None:
    made = client.responses.create(model=model, input="!tokens 50", store=False, max_output_tokens=5)
    assert made.status == "incomplete"
    assert made.incomplete_details is not None
    assert made.incomplete_details.reason == "max_output_tokens"
    assert made.output_text == "word0 word1 word2 word3 word4"


def test_events_come_in_their_order_and_are_numbered(client: openai.OpenAI, model: str) -> None:
    with client.responses.create(model=model, input="hello there", store=False, stream=True) as stream:
        events = list(stream)
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_the_streaming_helper_assembles_the_response(client: openai.OpenAI, model: str) -> None:
    with client.responses.stream(model=model, input="hello there", store=False) as stream:
        said = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert said == final.output_text == "You said: hello there"
    assert final.usage is not None
    assert final.usage.total_tokens == 6


def test_structured_output_is_parsed(client: openai.OpenAI, model: str) -> None:
    made = client.responses.parse(
        model=model, input='!json {"name": "Bergen", "people": 290000}', text_format=City, store=False
    )
    assert made.output_parsed == City(name="Bergen", people=290000)


def test_the_streaming_helper_parses_structured_output(client: openai.OpenAI, model: str) -> None:
    with client.responses.stream(
        model=model, input='!json {"name": "Bergen", "people": 290000}', text_format=City, store=False
    ) as stream:
        assert stream.get_final_response().output_parsed == City(name="Bergen", people=290000)


def test_a_function_is_called_and_its_result_is_taken_back(client: openai.OpenAI, model: str) -> None:
    context: list[Any] = [{"role": "user", "content": '!tool weather {"city": "Bergen"}'}]
    asked = client.responses.create(model=model, input=context, tools=[WEATHER], store=False)
    calls = [item for item in asked.output if item.type == "function_call"]
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [("weather", {"city": "Bergen"})]
    context += [item.to_dict() for item in asked.output]
    context += [{"type": "function_call_output", "call_id": calls[0].call_id, "output": "rain"}]
    context += [{"role": "user", "content": "and so?"}]
    answered = client.responses.create(model=model, input=context, tools=[WEATHER], store=False)
    assert answered.output_text == "You said: and so?"


def test_the_streaming_helper_assembles_function_calls(client: openai.OpenAI, model: str) -> None:
    with client.responses.stream(
        model=model, input='!tool weather {"city": "Bergen"}', tools=[WEATHER], store=False
    ) as stream:
        done = [event for event in stream if event.type == "response.function_call_arguments.done"]
        final = stream.get_final_response()
    assert [json.loads(event.arguments) for event in done] == [{"city": "Bergen"}]
    assert [item.type for item in final.output] == ["function_call"]


def test_model_refusal_is_marked_as_a_refusal(client: openai.OpenAI, model: str) -> None:
    made = client.responses.create(model=model, input="!refuse I would rather not.", store=False)
    assert made.output[0].type == "message"
    assert [part.type for part in made.output[0].content] == ["refusal"]


@pytest.mark.parametrize("accept", ["text/event-stream", "application/json;q=0.9, Text/Event-Stream; q=1"])
def test_asking_for_an_event_stream_is_enough_to_get_one(
    client: openai.OpenAI, model: str, accept: str
) -> None:
    with client.responses.with_streaming_response.create(
        model=model, input="hello", store=False, extra_headers={"Accept": accept}
    ) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    assert lines[0] == "event: response.created"
    assert "event: response.completed" in lines


@pytest.mark.parametrize("directive", ["!break after 2", "!end after 2", "!fail 500 after 2"])
def test_broken_stream_never_ends_as_complete(client: openai.OpenAI, model: str, directive: str) -> None:
    kinds: list[str] = []
    with (
        client.responses.create(
            model=model, input=f"!tokens 9\n{directive}", store=False, stream=True
        ) as stream,
        pytest.raises(openai.APIError) as raised,
    ):
        kinds.extend(event.type for event in stream)
    assert raised.value.code == "provider_error"
    assert kinds.count("response.output_text.delta") == 2
    assert "response.completed" not in kinds
