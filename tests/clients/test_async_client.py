"""The asynchronous client, many calls at once."""

import asyncio

import openai
import pytest

from tests.support.models.model_service import ModelService

MANY = 400


def connect(service: ModelService) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{service.front.url}/v1", api_key=service.api_key)


def test_models_are_listed_and_retrieved(service: ModelService) -> None:
    async def look() -> tuple[set[str], str]:
        async with connect(service) as client:
            listed = {model.id async for model in client.models.list()}
            return listed, (await client.models.retrieve("scripted/echo")).id

    listed, one = asyncio.run(look())
    assert {"scripted/echo", "fake/chat"} <= listed
    assert one == "scripted/echo"


def test_completions_and_responses_run_at_once(service: ModelService, model: str) -> None:
    async def ask() -> list[str | None]:
        async with connect(service) as client:

            async def chat(number: int) -> str | None:
                made = await client.chat.completions.create(
                    model=model, messages=[{"role": "user", "content": f"{number}"}]
                )
                return made.choices[0].message.content

            async def respond(number: int) -> str | None:
                return (
                    await client.responses.create(model=model, input=f"{number}", store=False)
                ).output_text

            return await asyncio.gather(*map(chat, range(8)), *map(respond, range(8)))

    assert asyncio.run(ask()) == [f"You said: {number}" for number in range(8)] * 2


def test_streams_run_at_once(service: ModelService, model: str) -> None:
    async def ask() -> list[str]:
        async with connect(service) as client:

            async def chat(number: int) -> str:
                said = []
                stream = await client.chat.completions.create(
                    model=model, messages=[{"role": "user", "content": f"{number}"}], stream=True
                )
                async with stream:
                    async for chunk in stream:
                        said += [choice.delta.content or "" for choice in chunk.choices]
                return "".join(said)

            async def respond(number: int) -> str:
                async with client.responses.stream(model=model, input=f"{number}", store=False) as stream:
                    return (await stream.get_final_response()).output_text

            return list(await asyncio.gather(*map(chat, range(8)), *map(respond, range(8))))

    assert asyncio.run(ask()) == [f"You said: {number}" for number in range(8)] * 2


def test_the_chat_helper_streams(service: ModelService, model: str) -> None:
    async def ask() -> str | None:
        async with (
            connect(service) as client,
            client.chat.completions.stream(
                model=model, messages=[{"role": "user", "content": "hello"}]
            ) as stream,
        ):
            return (await stream.get_final_completion()).choices[0].message.content

    assert asyncio.run(ask()) == "You said: hello"


def test_refusals_are_the_clients_own_exceptions(service: ModelService) -> None:
    async def ask() -> None:
        async with connect(service) as client:
            await client.responses.create(model="scripted/nothing", input="hello", store=False)

    with pytest.raises(openai.NotFoundError) as raised:
        asyncio.run(ask())
    assert raised.value.code == "model_not_found"


def test_four_hundred_first_calls_at_once_fail_none(service: ModelService, model: str) -> None:
    async def ask() -> list[str | None]:
        # The client sends head and body in separate packets and does not retry. On a loaded machine, it may notice
        # late that it is connected.
        async with connect(service).with_options(max_retries=0, timeout=60) as client:

            async def chat(number: int) -> str | None:
                made = await client.chat.completions.create(
                    model=model, messages=[{"role": "user", "content": f"{number}"}]
                )
                return made.choices[0].message.content

            return await asyncio.gather(*map(chat, range(MANY)))

    assert asyncio.run(ask()) == [f"You said: {number}" for number in range(MANY)]
