"""Chat completions as the official client reads them, over upstreams of both dialects."""

from typing import Any

import pytest
from openai import APIError, OpenAI, pydantic_function_tool
from pydantic import BaseModel

from shared.models.dialects import Dialect
from tests.shared.models.dialects.conftest import stream_of
from tests.shared.models.dialects.serving import CREATED, MODEL, Script
from tests.shared.models.dialects.upstreams import Reply

ASK: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "What is the weather?"}]}
LOGPROB = {
    "token": "Hi",
    "bytes": [72, 105],
    "logprob": -0.1,
    "top_logprobs": [{"token": "Hi", "bytes": None, "logprob": -0.1}],
}


class Weather(BaseModel):
    """A tool's arguments, and a structured reply."""

    city: str
    degrees: int


def test_a_completion_is_read_whole(client: OpenAI, script: Script) -> None:
    script.events = stream_of(script, Reply(text=["Mild ", "and dry."], reasoning=["Looking ", "outside."]))
    completion = client.chat.completions.create(**ASK)
    assert completion.choices[0].message.content == "Mild and dry."
    assert completion.choices[0].finish_reason == "stop"
    assert completion.choices[0].message.to_dict()["reasoning_content"] == "Looking outside."
    assert (completion.model, completion.created) == (MODEL, CREATED)
    assert completion.usage is not None
    assert completion.usage.prompt_tokens == 11
    assert completion.usage.prompt_tokens_details is not None
    assert completion.usage.prompt_tokens_details.cached_tokens == 4
    assert completion.usage.completion_tokens_details is not None
    assert completion.usage.completion_tokens_details.reasoning_tokens == 2


def test_a_raw_stream_carries_usage_only_when_asked(client: OpenAI, script: Script) -> None:
    script.events = stream_of(script, Reply(text=["a", "b"]))
    with client.chat.completions.create(**ASK, stream=True) as plain:
        chunks = list(plain)
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)
    with client.chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True}) as asked:
        chunks = list(asked)
    assert [chunk.usage is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
    assert chunks[-1].choices == []
    assert {chunk.id for chunk in chunks} == {"chatcmpl-01935b2a000070008000000000000001"}
    assert {chunk.model for chunk in chunks} == {MODEL}


def test_the_stream_helper_puts_text_and_usage_together(client: OpenAI, script: Script) -> None:
    script.events = stream_of(script, Reply(text=["Mild ", "and ", "dry."]))
    with client.chat.completions.stream(**ASK, stream_options={"include_usage": True}) as stream:
        kinds = [event.type for event in stream]
        completion = stream.get_final_completion()
    assert kinds.count("content.delta") >= 3
    assert completion.choices[0].message.content == "Mild and dry."
    assert completion.usage is not None
    assert completion.usage.total_tokens == 18


def test_the_stream_helper_parses_structured_output(client: OpenAI, script: Script) -> None:
    script.events = stream_of(script, Reply(text=['{"city": "Oslo", ', '"degrees": 7}']))
    with client.chat.completions.stream(**ASK, response_format=Weather) as stream:
        stream.until_done()
        parsed = stream.get_final_completion().choices[0].message.parsed
    assert parsed == Weather(city="Oslo", degrees=7)
    asked = script.asked
    form = (
        asked["text"]["format"]
        if script.upstream is Dialect.RESPONSES
        else asked["response_format"]["json_schema"]
    )
    assert form["name"] == "Weather"
    assert form["strict"] is True


def test_the_stream_helper_parses_tool_calls(client: OpenAI, script: Script) -> None:
    calls = [
        ("call_a", "Weather", ['{"city": "Os', 'lo", "degrees": 7}']),
        ("call_b", "Weather", ['{"city":"Rome","degrees":20}']),
    ]
    script.events = stream_of(script, Reply(text=["Let me look."], calls=calls))
    with client.chat.completions.stream(**ASK, tools=[pydantic_function_tool(Weather)]) as stream:
        done = [
            event.parsed_arguments for event in stream if event.type == "tool_calls.function.arguments.done"
        ]
        completion = stream.get_final_completion()
    assert done == [Weather(city="Oslo", degrees=7), Weather(city="Rome", degrees=20)]
    message = completion.choices[0].message
    assert [call.id for call in message.tool_calls or ()] == ["call_a", "call_b"]
    assert (message.role, completion.choices[0].finish_reason) == ("assistant", "tool_calls")


def test_a_refusal_arrives_as_one(client: OpenAI, script: Script) -> None:
    script.events = stream_of(script, Reply(refusal=["I will ", "not."]))
    assert client.chat.completions.create(**ASK).choices[0].message.refusal == "I will not."
    with client.chat.completions.stream(**ASK) as stream:
        assert stream.get_final_completion().choices[0].message.refusal == "I will not."


def test_log_probabilities_arrive(client: OpenAI, script: Script) -> None:
    script.events = stream_of(script, Reply(text=["Hi"], logprobs=[LOGPROB]))
    completion = client.chat.completions.create(**ASK, logprobs=True, top_logprobs=1)
    logprobs = completion.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert logprobs.content[0].logprob == -0.1
    assert logprobs.content[0].top_logprobs[0].token == "Hi"


def test_reply_at_the_limit_has_finish_reason_length(client: OpenAI, script: Script) -> None:
    script.events = stream_of(script, Reply(text=["And then"], finish="length"))
    assert client.chat.completions.create(**ASK).choices[0].finish_reason == "length"


def test_a_stream_that_breaks_off_raises(client: OpenAI, script: Script) -> None:
    script.events = stream_of(script, Reply(text=["a", "b"]))[:3]
    with (
        pytest.raises(APIError, match="before the reply was complete") as raised,
        client.chat.completions.create(**ASK, stream=True) as stream,
    ):
        list(stream)
    assert raised.value.code == "provider_error"
