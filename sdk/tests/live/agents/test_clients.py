"""a2a-sdk's client sends messages to an agent, over both bindings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.client.card_resolver import A2ACardResolver
from a2a.helpers import new_text_message
from a2a.types import Role, SendMessageRequest, TaskState

from quartermaster.agents import Agent, Status
from sdk.tests.agents.served import served
from sdk.tests.live.agents.conftest import Service

PIECES = 200


@pytest.mark.parametrize("binding", ["HTTP+JSON", "JSONRPC"])
def test_its_client_follows_a_stream(service: Service, binding: str) -> None:
    agent = Agent("Streamer", "Counts.", **service.credentials)

    @agent.skill
    def count(text: str) -> Iterator[str | Status]:
        yield Status("Counting")
        for at in range(PIECES):
            yield f"{text}{at} "

    with served(agent) as streamer:
        text, states = asyncio.run(_stream(streamer.url, service.headers, binding))
    assert text == "".join(f"n{at} " for at in range(PIECES))
    assert states[-1] == TaskState.TASK_STATE_COMPLETED


async def _stream(url: str, headers: dict[str, str], binding: str) -> tuple[str, list[TaskState]]:
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        factory = ClientFactory(ClientConfig(httpx_client=http, supported_protocol_bindings=[binding]))
        client = factory.create(card)
        request = SendMessageRequest(message=new_text_message("n", role=Role.ROLE_USER))
        text, states = "", []
        async for event in client.send_message(request):
            if event.HasField("artifact_update"):
                text += "".join(part.text for part in event.artifact_update.artifact.parts)
            if event.HasField("status_update"):
                states.append(event.status_update.status.state)
        return text, states
