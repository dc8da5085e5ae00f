"""Messages through Anthropic's client, over upstreams of both dialects."""

import asyncio
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import pytest

from shared.credits.balances import Policy
from shared.credits.policies import set_policy
from shared.identity.access.authorization import OPERATOR
from tests.support.models.model_service import ModelService

WEATHER: Any = {
    "name": "weather",
    "description": "Tell the weather.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALL = '!tool weather {"city": "Bergen"}'
BERGEN = {"city": "Bergen"}


def connect(service: ModelService, api_key: str | None = None, **options: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(
        base_url=service.front.url,
        api_key=api_key or service.api_key,
        _strict_response_validation=True,
        **options,
    )


@pytest.fixture
def client(service: ModelService) -> Iterator[anthropic.Anthropic]:
    with connect(service) as client:
        yield client


def asked(model: str, text: str = "hello there", **more: Any) -> Any:
    return {"model": model, "max_tokens": 100, "messages": [{"role": "user", "content": text}], **more}


def text_of(message: anthropic.types.Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def test_a_message_is_created_charged_and_attributed(
    client: anthropic.Anthropic, service: ModelService, model: str
) -> None:
    message = client.messages.create(**asked(model))
    assert (text_of(message), message.model, message.stop_reason) == (
        "You said: hello there",
        model,
        "end_turn",
    )
    assert (message.usage.input_tokens, message.usage.output_tokens) == (2, 4)
    assert message._request_id
    record = service.wait_for_record(message.id.removeprefix("msg_"))
    assert (record["prompt_tokens"], record["completion_tokens"], record["status"]) == (2, 4, "completed")
    assert record["user_id"] is not None
    assert message.usage.to_dict()["cost"] is not None


def test_a_stream_ends_with_what_is_charged(
    client: anthropic.Anthropic, service: ModelService, model: str
) -> None:
    with client.messages.stream(**asked(model, system="Be brief.")) as stream:
        assert "".join(stream.text_stream) == "You said: hello there"
        message = stream.get_final_message()
    record = service.wait_for_record(message.id.removeprefix("msg_"))
    assert (message.usage.input_tokens, message.usage.output_tokens) == (
        record["prompt_tokens"],
        record["completion_tokens"],
    )


def test_events_are_named_and_nothing_follows_the_last(client: anthropic.Anthropic, model: str) -> None:
    with client.messages.with_streaming_response.create(**asked(model), stream=True) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    assert next(line for line in lines if line.startswith("event: ")) == "event: message_start"
    assert lines[-2] == "event: message_stop"
    assert not any("[DONE]" in line for line in lines)


def test_tools_are_called_and_their_results_taken_back(client: anthropic.Anthropic, model: str) -> None:
    first = client.messages.create(**asked(model, CALL, tools=[WEATHER]))
    assert first.stop_reason == "tool_use"
    with client.messages.stream(**asked(model, CALL, tools=[WEATHER])) as stream:
        streamed = stream.get_final_message()
    calls = [block for block in first.content if block.type == "tool_use"]
    assert [(call.name, call.input) for call in calls] == [("weather", BERGEN)]
    assert [block.input for block in streamed.content if block.type == "tool_use"] == [BERGEN]
    answered = {"type": "tool_result", "tool_use_id": calls[0].id, "content": "rain"}
    turns: Any = [
        {"role": "user", "content": CALL},
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [answered, {"type": "text", "text": "and so?"}]},
    ]
    second = client.messages.create(model=model, max_tokens=100, messages=turns, tools=[WEATHER])
    assert text_of(second) == "You said: and so?"


def test_thoughts_are_returned_on_request(client: anthropic.Anthropic, model: str) -> None:
    thinking: Any = {"type": "enabled", "budget_tokens": 1024}
    message = client.messages.create(**asked(model, "!think Let me see.\n!say Yes.", thinking=thinking))
    assert [block.type for block in message.content] == ["thinking", "text"]
    again: Any = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": "second"},
    ]
    assert text_of(client.messages.create(model=model, max_tokens=9, messages=again)) == "You said: second"


def test_a_limit_stops_the_message(client: anthropic.Anthropic, model: str) -> None:
    message = client.messages.create(**asked(model, "!tokens 50") | {"max_tokens": 5})
    assert message.stop_reason == "max_tokens"
    assert text_of(message) == "word0 word1 word2 word3 word4"


def test_model_refusal_is_marked_as_a_refusal(client: anthropic.Anthropic, model: str) -> None:
    message = client.messages.create(**asked(model, "!refuse I would rather not."))
    assert (text_of(message), message.stop_reason) == ("I would rather not.", "refusal")


def test_previews_ask_the_same(client: anthropic.Anthropic, model: str) -> None:
    message = client.beta.messages.create(**asked(model), betas=["context-management-2025-06-27"])
    assert message.stop_reason == "end_turn"


def test_an_asynchronous_client_is_served_alike(service: ModelService, model: str) -> None:
    async def talk() -> tuple[str, str]:
        async with anthropic.AsyncAnthropic(base_url=service.front.url, api_key=service.api_key) as client:
            whole = await client.messages.create(**asked(model))
            async with client.messages.stream(**asked(model)) as stream:
                return text_of(whole), "".join([text async for text in stream.text_stream])

    assert asyncio.run(talk()) == ("You said: hello there", "You said: hello there")


def test_tokens_are_counted_at_no_cost(
    client: anthropic.Anthropic, service: ModelService, model: str
) -> None:
    before = len(service.invocations())
    counted = client.messages.count_tokens(model=model, messages=[{"role": "user", "content": "word " * 100}])
    assert 100 < counted.input_tokens < 200
    assert len(service.invocations()) == before


def test_models_are_listed_in_the_clients_shape(client: anthropic.Anthropic) -> None:
    listed = list(client.models.list(limit=2))
    assert "scripted/echo" in [model.id for model in listed]
    assert "scripted/chat-only" not in [model.id for model in listed]
    assert client.models.retrieve("scripted/echo").type == "model"


@pytest.mark.parametrize("directive", ["!break after 2", "!end after 2", "!fail 500 after 2"])
def test_broken_stream_never_ends_as_complete(
    client: anthropic.Anthropic, model: str, directive: str
) -> None:
    kinds: list[str] = []
    with (
        client.messages.create(**asked(model, f"!tokens 9\n{directive}"), stream=True) as stream,
        pytest.raises(anthropic.APIStatusError) as raised,
    ):
        kinds.extend(event.type for event in stream)
    told: Any = raised.value.body
    assert told["error"]["code"] == "provider_error"
    assert kinds.count("content_block_delta") == 2
    assert "message_stop" not in kinds


class Counted:
    """A client that counts the requests it sends."""

    def __init__(self, service: ModelService, api_key: str | None = None) -> None:
        self.requests = 0
        http = httpx2.Client(event_hooks={"request": [self._count]})
        self.client = connect(service, api_key, http_client=http)

    def _count(self, _: object) -> None:
        self.requests += 1

    def refusal(self, **changes: Any) -> anthropic.APIStatusError:
        """Send a request that is refused. Check that it was sent once."""
        with self.client, pytest.raises(anthropic.APIStatusError) as raised:
            self.client.messages.create(**asked("scripted/echo") | changes)
        assert self.requests == 1
        assert raised.value.request_id
        return raised.value


def code_of(error: anthropic.APIStatusError) -> str:
    assert isinstance(error.body, dict)
    return str(error.body["error"]["code"])


@pytest.mark.parametrize(
    ("changes", "raised", "code"),
    [
        ({"model": "scripted/nothing"}, anthropic.NotFoundError, "model_not_found"),
        ({"model": "scripted/chat-only"}, anthropic.BadRequestError, "model_not_supported"),
        ({"model": "scripted/pictures"}, anthropic.BadRequestError, "model_not_supported"),
        ({"max_tokens": 0}, anthropic.BadRequestError, "invalid_request"),
        ({"extra_body": {"mcp_servers": []}}, anthropic.BadRequestError, "invalid_request"),
    ],
)
def test_a_refusal_is_raised_and_not_retried(
    service: ModelService, changes: Any, raised: type[anthropic.APIStatusError], code: str
) -> None:
    error = Counted(service).refusal(**changes)
    assert isinstance(error, raised)
    assert code_of(error) == code


def test_a_wrong_key_is_refused(service: ModelService) -> None:
    error = Counted(service, "svk_wrong").refusal()
    assert isinstance(error, anthropic.AuthenticationError)


def test_an_organization_without_credits_pays_nothing(service: ModelService) -> None:
    organization_id = service.identity.organization("Poor").id
    person = service.identity.person(organization_id, bound=True)
    error = Counted(service, person.api_key).refusal()
    assert (error.status_code, code_of(error)) == (402, "insufficient_credits")
    service.give_credits(organization_id, 1_000_000)
    with service.database.transaction() as session:
        set_policy(session, organization_id=organization_id, policy=Policy.SUSPENDED, actor=OPERATOR)
    error = Counted(service, person.api_key).refusal()
    assert (error.status_code, code_of(error)) == (403, "credit_policy_suspended")
