"""A message reaches a remote agent in a process of its own, and its report returns."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any
from uuid import uuid4

import httpx
import pytest
import requests
from a2a.client import ClientConfig, ClientFactory
from a2a.client.card_resolver import A2ACardResolver
from a2a.types import Message, Part, Role, SendMessageRequest, TaskState
from standardwebhooks import Webhook

from tests.support.agents.rest_clients import TIMEOUT_SECONDS, Client, exchange_token, open_link
from tests.support.data.media_samples import PNG
from tests.support.data.media_sources import MediaSource, content
from tests.support.models.catalog_text import model_text
from tests.support.processes.agent_processes import DEVELOPMENT, running_agent
from tests.support.processes.stack import Servers, Stack, wait_until
from tests.support.servers.local_servers import LocalServer

WORKERS = ("files", "models", "media", "agents")
MODELS = '[providers.scripted]\nkind = "scripted"\n\n' + model_text(
    "scripted/echo", 'provider = "scripted", model = "echo"', prompt="1000", completion="2000"
)
ANSWER = f"You said: What is this? {PNG.file_name}: {len(PNG.content)} bytes."


class Network(LocalServer):
    """The distribution's notification endpoint, which verifies the signature of each message."""

    def __init__(self, webhook_secret: str) -> None:
        super().__init__()
        self._webhook = Webhook(webhook_secret)
        self._told: list[dict[str, Any]] = []

    def updates(self, message_id: str) -> list[dict[str, Any]]:
        """Return the notifications about a message, in order of arrival."""
        updates = (told["data"] for told in self._told if told["type"] == "message.update")
        return [update for update in updates if update["messageId"] == message_id]

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        told = self._webhook.verify(body.decode(), {name.lower(): at for name, at in handler.headers.items()})
        self._told.append(told)
        handler.send_response(204)
        handler.end_headers()


@dataclass(frozen=True, kw_only=True)
class House:
    """An installation whose first deployment is the SDK's example agent, in another process."""

    url: str
    credentials: dict[str, Any]
    network: Network

    @property
    def owner(self) -> Client:
        return Client(self.url, self.credentials["ownerApiKey"])

    @property
    def agent(self) -> Client:
        return Client(self.url, exchange_token(self.url, self.credentials))

    @property
    def deployment_id(self) -> str:
        return str(self.credentials["deployment"]["id"])

    @property
    def principal_id(self) -> str:
        return str(self.credentials["distribution"]["principalIdentityId"])

    def register(self, address: str) -> None:
        """Register the agent's URL, and the distribution's notification endpoint."""
        told = f"/admin/distributions/{self.credentials['distribution']['id']}/notification-endpoint"
        set_endpoint = self.owner.request("PUT", told, json={"url": f"{self.network.url}/told"})
        assert set_endpoint.status_code == 200, set_endpoint.text
        endpoint = f"/admin/deployments/{self.deployment_id}/endpoint"
        put = self.owner.request("PUT", endpoint, json={"url": address})
        assert put.status_code == 200, put.text
        checked = self.owner.request("POST", f"{endpoint}/check")
        assert (checked.status_code, checked.json()["isUsable"]) == (200, True), checked.text

    def as_distribution(self, method: str, path: str, **more: Any) -> requests.Response:
        token = self.credentials["distribution"]["token"]
        headers = {"Authorization": f"Bearer {token}"}
        return requests.request(method, self.url + path, headers=headers, timeout=TIMEOUT_SECONDS, **more)

    def push(self, **fields: Any) -> dict[str, Any]:
        """Push a message of the distribution."""
        path = f"/distributions/{self.credentials['distribution']['id']}/messages"
        answer = self.as_distribution("POST", path, json={"messageId": uuid4().hex, **fields})
        assert answer.status_code == 202, answer.text
        taken: dict[str, Any] = answer.json()
        return taken

    def answered(self, task_id: str, state: str = "TASK_STATE_COMPLETED") -> dict[str, Any]:
        """Return a task of the distribution as the receiving identity sees it, once it has this state."""
        minted = self.as_distribution("POST", "/oauth/attributions", json={}).json()["attribution"]
        agent = self.agent
        path, headers = f"/agents/{self.deployment_id}/tasks/{task_id}", {"Service-Usage-Attribution": minted}
        task: dict[str, Any] = {}

        def has_answered() -> bool:
            task.update(agent.request("GET", path, headers=headers).json())
            assert task.get("status", {}).get("state") != "TASK_STATE_FAILED", task
            return bool(task.get("status", {}).get("state") == state)

        wait_until(has_answered, "the agent answers")
        return task


@pytest.fixture(scope="module")
def house(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """Run an installation and the agent, and register the agent's URL."""
    directory = tmp_path_factory.mktemp("house")
    models = directory / "models.toml"
    models.write_text(MODELS)
    stack = Stack(directory, servers, settings={**DEVELOPMENT, "MODELS_CONFIG": str(models)})
    credentials, front = stack.set_up(), stack.web()
    workers = [stack.worker(name) for name in WORKERS]
    try:
        with (
            stack.running(front, *workers),
            Network(credentials["distribution"]["webhookSecret"]) as network,
            running_agent(front.url, credentials) as address,
        ):
            house = House(url=front.url, credentials=credentials, network=network)
            house.register(address)
            yield house
    finally:
        stack.kill_all()


def test_message_with_a_photo_becomes_a_report_of_the_receiving_identity(house: House) -> None:
    balance = house.owner.request("GET", "/v1/credits").json()["balance"]
    with MediaSource() as source:
        photo = source.serve("/photo", content(PNG.content, PNG.media_type))
        taken = house.push(
            conversationId="c-1",
            text="What is this?",
            channel="webhook",
            reportedCaller={"id": "U123", "display": "Ada"},
            attachments=[attachment(photo)],
        )
        task = house.answered(taken["taskId"])
    report, said = task["artifacts"]
    assert said["parts"][0]["text"] == "Here is your report."
    (part,) = report["parts"]
    assert open_link(part["url"], via=house.url).text == ANSWER
    described = report["metadata"][f"{house.url}/extensions/file-artifact/v1"]
    file = house.owner.read(described["id"]).json()
    assert file["owner"] == {"kind": "PrincipalIdentity", "id": house.principal_id}
    assert (file["versionId"], file["purpose"]) == (described["versionId"], "AgentArtifact")
    assert file["metadata"]["retentionExpiresAt"] is not None
    record = house.owner.request("GET", "/v1/usage/records").json()["data"][0]
    assert (record["model"], record["principal_id"]) == ("scripted/echo", house.principal_id)
    assert record["deployment_id"] == house.deployment_id
    paid = float(balance) - float(house.owner.request("GET", "/v1/credits").json()["balance"])
    assert paid == pytest.approx(float(record["cost"]))
    assert paid > 0


def test_distribution_receives_the_agents_reply_with_a_report_link(house: House) -> None:
    with MediaSource() as source:
        photo = source.serve("/photo", content(PNG.content, PNG.media_type))
        taken = house.push(conversationId="c-3", text="What is this?", attachments=[attachment(photo)])
        house.answered(taken["taskId"])
    wait_until(lambda: is_over(house.network.updates(taken["messageId"])), "the distribution is told")
    told = house.network.updates(taken["messageId"])
    assert [at["sequence"] for at in told] == sorted({at["sequence"] for at in told})
    assert {(at["taskId"], at["conversationId"]) for at in told} == {(taken["taskId"], "c-3")}
    artifacts = [
        at["update"]["artifactUpdate"]["artifact"] for at in told if "artifactUpdate" in at["update"]
    ]
    assert open_link(artifacts[0]["parts"][0]["url"], via=house.url).text == ANSWER
    assert artifacts[1]["parts"][0]["text"] == "Here is your report."


def is_over(told: list[dict[str, Any]]) -> bool:
    states = (at["update"].get("statusUpdate", {}).get("status", {}).get("state") for at in told)
    return "TASK_STATE_COMPLETED" in states


def test_conversation_continues_after_the_agents_question(house: House) -> None:
    taken = house.push(conversationId="c-2", text="What is this?")
    asked = house.answered(taken["taskId"], "TASK_STATE_INPUT_REQUIRED")
    assert asked["status"]["message"]["parts"][0]["text"] == "Which photo?"
    with MediaSource() as source:
        photo = source.serve("/photo", content(PNG.content, PNG.media_type))
        again = house.push(conversationId="c-2", text="What is this?", attachments=[attachment(photo)])
        task = house.answered(again["taskId"])
    assert again["taskId"] == taken["taskId"]
    assert open_link(task["artifacts"][0]["parts"][0]["url"], via=house.url).text == ANSWER


def test_sdk_client_streams_the_same_from_the_services_own_address(house: House) -> None:
    card, states, artifacts = asyncio.run(stream(house))
    assert card.name == "Reporter"
    assert states[-1] == TaskState.TASK_STATE_COMPLETED
    report, said = artifacts
    assert said.parts[0].text == "Here is your report."
    assert open_link(report.parts[0].url, via=house.url).text == ANSWER


def attachment(url: str) -> dict[str, str]:
    return {"attachmentId": "1", "url": url, "fileName": PNG.file_name, "mediaType": PNG.media_type}


async def stream(house: House) -> tuple[Any, list[TaskState], list[Any]]:
    """Have a2a-sdk's client find the agent by its card; return the streamed states and contents."""
    headers = {"Authorization": f"Bearer {house.credentials['ownerApiKey']}"}
    photo = Part(raw=PNG.content, filename=PNG.file_name, media_type=PNG.media_type)
    message = Message(message_id=uuid4().hex, role=Role.ROLE_USER, parts=[Part(text="What is this?"), photo])
    async with httpx.AsyncClient(headers=headers, timeout=TIMEOUT_SECONDS) as http:
        card = await A2ACardResolver(http, f"{house.url}/agents/{house.deployment_id}").get_agent_card()
        config = ClientConfig(httpx_client=http, supported_protocol_bindings=["HTTP+JSON"])
        client = ClientFactory(config).create(card)
        states, artifacts = [], []
        async for event in client.send_message(SendMessageRequest(message=message)):
            if event.HasField("status_update"):
                states.append(event.status_update.status.state)
            if event.HasField("artifact_update"):
                artifacts.append(event.artifact_update.artifact)
        return card, states, artifacts
