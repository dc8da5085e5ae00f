"""The running service with agents, two web processes and the workers; and the published client."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID, uuid4

import httpx
import pytest
from a2a.client import Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.service_parameters import ServiceParametersFactory, with_a2a_extensions
from a2a.types import Message, Part, Role, SendMessageRequest, StreamResponse
from a2a.utils import TransportProtocol

from shared.a2a.behaviors.administration import BehaviorDraft, create_behavior
from shared.a2a.updates import BehaviorKind, DeclaredExtension
from shared.identity.access.authorization import OPERATOR
from shared.identity.directory.deployments import CreatedDeployment
from tests.support.models.model_service import ModelService
from tests.support.processes.stack import Service, free_port

T = TypeVar("T")
DEVELOPING = {"EGRESS_ALLOW_PRIVATE": "true", "EGRESS_ALLOW_HTTP": "true"}
SCRIPT = """
rules:
  - match: {text: ping}
    steps: [{message: pong}]
  - match: {text: ask}
    steps: [{input_required: 'Which one?'}, {echo: complete}]
  - match: {text: hang}
    steps: [{status: Hanging}, {hang: true}]
  - match: {text: silence}
    steps: [{silence: true}]
  - match: {contains: echo}
    steps: [{echo: artifact}, {echo: complete}]
  - match: {contains: slow}
    steps:
      - status: Counting
      - artifact: {id: count, chunks: ["1 ", "2 ", "3 ", "4 ", "5 ", "6 "], every: 0.25}
      - complete: Counted
  - steps:
      - status: Working
      - artifact: {id: a, name: report, chunks: ["Once ", "upon ", "a time"]}
      - complete: Done
"""


@dataclass(frozen=True, kw_only=True)
class Agents:
    """The service, its processes, and a scripted agent beside the default one."""

    service: ModelService
    second: Service
    worker: Service
    scripted: CreatedDeployment

    @property
    def fronts(self) -> tuple[str, str]:
        """The addresses of both web processes."""
        return self.service.front.url, self.second.url

    def address(self, deployment: CreatedDeployment | None = None, *, front: str | None = None) -> str:
        """Return an agent's address: by default the scripted agent's, at the web process that its card names."""
        agent = (deployment or self.scripted).deployment
        return f"{front or self.second.url}/agents/{agent.id}"

    def new_agent(
        self, script: str = SCRIPT, extensions: tuple[DeclaredExtension, ...] = ()
    ) -> CreatedDeployment:
        """Create another scripted agent."""
        created = self.service.identity.deployment(self.service.organization_id)
        give_script(self.service, created.deployment.id, script, extensions)
        return created


@dataclass(frozen=True, kw_only=True)
class Talk:
    """A client of an agent, and the activated extensions of each response's header."""

    client: Client
    http: httpx.AsyncClient
    echoed: list[list[str]] = field(default_factory=list)

    async def say(self, text: str = "hello", *uris: str, **more: Any) -> list[StreamResponse]:
        """Send a message. Return what the client yields."""
        said = Message(message_id=str(uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)], **more)
        request = SendMessageRequest(message=said)
        return [event async for event in self.client.send_message(request, context=activating(*uris))]


def activating(*uris: str) -> ClientCallContext:
    """Return the context of a call that activates extensions."""
    return ClientCallContext(
        service_parameters=ServiceParametersFactory.create([with_a2a_extensions(list(uris))]), timeout=60
    )


@asynccontextmanager
async def talking(
    address: str,
    authorization: str,
    *,
    streaming: bool = True,
    polling: bool = False,
    binding: TransportProtocol = TransportProtocol.HTTP_JSON,
) -> AsyncIterator[Talk]:
    """Yield a client that is created from the agent's card, as its documentation shows."""
    echoed: list[list[str]] = []

    async def hear(response: httpx.Response) -> None:
        header = response.headers.get("A2A-Extensions", "")
        echoed.append([uri.strip() for uri in header.split(",") if uri.strip()])

    headers = {"Authorization": authorization}
    async with httpx.AsyncClient(headers=headers, timeout=60, event_hooks={"response": [hear]}) as http:
        config = ClientConfig(
            httpx_client=http,
            streaming=streaming,
            polling=polling,
            supported_protocol_bindings=[binding],
        )
        client = await ClientFactory(config).create_from_url(address)
        yield Talk(client=client, http=http, echoed=echoed)


def run(conversation: Callable[[], Awaitable[T]]) -> T:
    """Run a conversation to its end."""

    async def within() -> T:
        return await asyncio.wait_for(conversation(), 60)

    return asyncio.run(within())


@pytest.fixture(scope="package")
def agents(service: ModelService) -> Iterator[Agents]:
    """Run the processes of agents beside those of models."""
    stack = service.stack
    scripted = service.identity.deployment(service.organization_id, "Scripted")
    give_script(service, scripted.deployment.id, SCRIPT)
    port = free_port()
    second = stack.web(port=port, BASE_URL=f"http://127.0.0.1:{port}", **DEVELOPING)
    worker = stack.worker("agents")
    with stack.running(second, worker, stack.worker("media", **DEVELOPING)):
        yield Agents(service=service, second=second, worker=worker, scripted=scripted)


def give_script(
    service: ModelService,
    deployment_id: UUID,
    script: str,
    extensions: tuple[DeclaredExtension, ...] = (),
) -> None:
    """Configure a scripted behavior for an agent."""
    draft = BehaviorDraft(
        name="scripted",
        kind=BehaviorKind.SCRIPT,
        description="Follows a script.",
        script=script,
        extensions=extensions,
    )
    with service.database.transaction() as session:
        create_behavior(session, actor=OPERATOR, deployment_id=deployment_id, draft=draft)
