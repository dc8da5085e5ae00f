"""Chat completions through OpenAI's client, over upstreams of both dialects."""

import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam

from tests.clients.samples import WEATHER_FUNCTION, City

WEATHER: Any = {"type": "function", "function": WEATHER_FUNCTION}


def say(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


def test_a_completion_is_created(client: openai.OpenAI, model: str) -> None:
    made = client.chat.completions.create(model=model, messages=say("hello there"))
    assert made.object == "chat.completion"
    assert made.model == model
    assert made.id.startswith("chatcmpl-")
    assert [(at.finish_reason, at.message.content) for at in made.choices] == [
        ("stop", "You said: hello there")
    ]
    assert made.usage is not None
    assert (made.usage.prompt_tokens, made.usage.completion_tokens, made.usage.total_tokens) == (2, 4, 6)
    assert made._request_id


def test_every_answer_passes_the_clients_strict_validation(
    client: openai.OpenAI, strict_client: openai.OpenAI, model: str
) -> None:
    made = strict_client.chat.completions.create(model=model, messages=say("hello"))
    assert made.choices[0].message.content == "You said: hello"
    with strict_client.chat.completions.create(model=model, messages=say("hello"), stream=True) as stream:
        assert "".join(at.choices[0].delta.content or "" for at in stream) == "You said: hello"


def test_several_choices_are_made_and_paid_for(client: openai.OpenAI) -> None:
    made = client.chat.completions.create(model="scripted/echo", messages=say("hello"), n=3)
    assert [at.index for at in made.choices] == [0, 1, 2]
    assert {at.message.content for at in made.choices} == {"You said: hello"}
    assert made.usage is not None
    assert made.usage.completion_tokens == 9


def test_a_limit_cuts_the_completion_short(client: openai.OpenAI, model: str) -> None:
    made = client.chat.completions.create(model=model, messages=say("!tokens 50"), max_completion_tokens=5)
    assert made.choices[0].finish_reason == "length"
    assert made.choices[0].message.content == "word0 word1 word2 word3 word4"


def test_log_probabilities_are_passed_on(client: openai.OpenAI) -> None:
    made = client.chat.completions.create(model="scripted/echo", messages=say("!say one two"), logprobs=True)
    assert made.choices[0].logprobs is not None
    tokens = made.choices[0].logprobs.content
    assert tokens is not None
    assert [(at.token, at.logprob) for at in tokens] == [("one", -0.25), (" two", -0.25)]


def test_a_tool_is_called_and_its_result_is_taken_back(client: openai.OpenAI, model: str) -> None:
    messages: list[Any] = say('!tool weather {"city": "Bergen"}')
    asked = client.chat.completions.create(model=model, messages=messages, tools=[WEATHER])
    assert asked.choices[0].finish_reason == "tool_calls"
    calls = asked.choices[0].message.tool_calls
    assert calls is not None
    assert calls[0].type == "function"
    assert (calls[0].function.name, json.loads(calls[0].function.arguments)) == (
        "weather",
        {"city": "Bergen"},
    )
    messages.append(asked.choices[0].message)
    messages.append({"role": "tool", "tool_call_id": calls[0].id, "content": "rain"})
    messages.append({"role": "user", "content": "and so?"})
    answered = client.chat.completions.create(model=model, messages=messages, tools=[WEATHER])
    assert answered.choices[0].message.content == "You said: and so?"


def test_structured_output_is_parsed(client: openai.OpenAI, model: str) -> None:
    made = client.chat.completions.parse(
        model=model, messages=say('!json {"name": "Bergen", "people": 290000}'), response_format=City
    )
    assert made.choices[0].message.parsed == City(name="Bergen", people=290000)


def test_model_refusal_is_marked_as_a_refusal(client: openai.OpenAI, model: str) -> None:
    made = client.chat.completions.create(model=model, messages=say("!refuse I would rather not."))
    assert made.choices[0].message.refusal == "I would rather not."
    assert not made.choices[0].message.content


def test_a_completion_is_streamed(client: openai.OpenAI, model: str) -> None:
    with client.chat.completions.create(model=model, messages=say("hello there"), stream=True) as stream:
        chunks = list(stream)
    assert "".join(at.choices[0].delta.content or "" for at in chunks) == "You said: hello there"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert len({at.id for at in chunks}) == 1
    assert {at.model for at in chunks} == {model}
    assert all(at.usage is None for at in chunks)


def test_usage_is_streamed_on_request(client: openai.OpenAI, model: str) -> None:
    with client.chat.completions.create(
        model=model, messages=say("hello there"), stream=True, stream_options={"include_usage": True}
    ) as stream:
        *others, last = list(stream)
    assert all(at.usage is None for at in others)
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.total_tokens == 6


def test_the_streaming_helper_assembles_the_completion(client: openai.OpenAI, model: str) -> None:
    with client.chat.completions.stream(
        model=model, messages=say("hello there"), stream_options={"include_usage": True}
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "content.delta" in kinds
    assert kinds.count("content.done") == 1
    assert kinds.index("content.done") > max(at for at, kind in enumerate(kinds) if kind == "content.delta")
    assert final.choices[0].message.content == "You said: hello there"
    assert final.usage is not None
    assert final.usage.total_tokens == 6


def test_the_streaming_helper_assembles_tool_calls(client: openai.OpenAI, model: str) -> None:
    with client.chat.completions.stream(
        model=model, messages=say('!tool weather {"city": "Bergen"}'), tools=[WEATHER]
    ) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion()
    assert [(event.name, json.loads(event.arguments)) for event in done] == [("weather", {"city": "Bergen"})]
    calls = final.choices[0].message.tool_calls
    assert calls is not None
    assert final.choices[0].finish_reason == "tool_calls"


def test_the_streaming_helper_parses_structured_output(client: openai.OpenAI, model: str) -> None:
    with client.chat.completions.stream(
        model=model, messages=say('!json {"name": "Bergen", "people": 290000}'), response_format=City
    ) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.parsed == City(name="Bergen", people=290000)


@pytest.mark.parametrize("accept", ["text/event-stream", "application/json;q=0.9, Text/Event-Stream; q=1"])
def test_asking_for_an_event_stream_is_enough_to_get_one(
    client: openai.OpenAI, model: str, accept: str
) -> None:
    with client.chat.completions.with_streaming_response.create(
        model=model, messages=say("hello"), extra_headers={"Accept": accept}
    ) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"


def test_event_stream_that_is_not_accepted_is_refused(client: openai.OpenAI, model: str) -> None:
    answer = client.chat.completions.with_raw_response.create(
        model=model,
        messages=say("hello"),
        extra_headers={"Accept": "text/event-stream;q=0, application/json"},
    )
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("directive", ["!break after 2", "!end after 2", "!fail 500 after 2"])
def test_broken_stream_raises_and_never_ends_as_complete(
    client: openai.OpenAI, model: str, directive: str
) -> None:
    heard: list[ChatCompletionChunk] = []
    with (
        client.chat.completions.create(
            model=model, messages=say(f"!tokens 9\n{directive}"), stream=True
        ) as stream,
        pytest.raises(openai.APIError) as raised,
    ):
        heard.extend(stream)
    assert raised.value.code == "provider_error"
    assert all(choice.finish_reason is None for chunk in heard for choice in chunk.choices)
    said = "".join(choice.delta.content or "" for chunk in heard for choice in chunk.choices)
    assert said == "word0 word1"
