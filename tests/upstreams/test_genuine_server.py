"""OpenAI's client, the service, and a genuine server behind it, in all four pairings of dialects.

The server sends usage on the finish chunk, no `[DONE]`, times as floats, and another model name. The client must see
none of it: it validates everything against OpenAI's own schema.
"""

from decimal import Decimal

import openai
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
BOTH = pytest.mark.parametrize("model", ["tiny/chat", "tiny/responses"])
MESSAGES: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]


@BOTH
def test_a_chat_completion(client: openai.OpenAI, model: str) -> None:
    completion = client.chat.completions.create(model=model, messages=MESSAGES, max_completion_tokens=6)
    assert completion.model == model
    assert completion.choices[0].message.content
    assert completion.usage is not None
    assert completion.usage.completion_tokens == 6
    assert completion.usage.prompt_tokens > 0


@BOTH
def test_a_streamed_chat_completion(client: openai.OpenAI, model: str) -> None:
    options: openai.types.chat.ChatCompletionStreamOptionsParam = {"include_usage": True}
    with client.chat.completions.create(
        model=model, messages=MESSAGES, max_completion_tokens=6, stream=True, stream_options=options
    ) as stream:
        chunks = list(stream)
    assert {chunk.model for chunk in chunks} == {model}
    assert len([chunk for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]) > 1
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] is not None
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 6
    assert not chunks[-1].choices


@BOTH
def test_a_response(client: openai.OpenAI, model: str) -> None:
    response = client.responses.create(model=model, input="hi", store=False, max_output_tokens=16)
    assert response.model == model
    assert response.output_text
    assert response.usage is not None
    assert response.usage.output_tokens == 16


@BOTH
def test_a_streamed_response(client: openai.OpenAI, model: str) -> None:
    with client.responses.create(
        model=model, input="hi", store=False, max_output_tokens=16, stream=True
    ) as stream:
        events = list(stream)
    assert events[0].type == "response.created"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert len([event for event in events if event.type == "response.output_text.delta"]) > 1
    last = events[-1]
    assert last.type in ("response.completed", "response.incomplete")
    assert last.response.usage is not None


def test_a_call_is_charged_by_what_the_server_counted(client: openai.OpenAI) -> None:
    before = balance(client)
    completion = client.chat.completions.create(model="tiny/chat", messages=MESSAGES, max_completion_tokens=6)
    assert completion.usage is not None
    cost = completion.usage.prompt_tokens * 1 + completion.usage.completion_tokens * 2
    assert before - balance(client) == Decimal(cost) / 1_000_000


def balance(client: openai.OpenAI) -> Decimal:
    answer = client.get("/credits", cast_to=dict[str, object])
    return Decimal(str(answer["balance"]))
