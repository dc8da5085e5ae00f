"""A distribution that pushes messages to its deployment's scripted agent."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from werkzeug.test import TestResponse

from shared.a2a.exact_json import parse
from shared.a2a.inbound.dispatcher import MessageDispatcher, route_due_messages
from shared.a2a.inbound.forwarder import MessageForwarder
from shared.identity.access.authorization import OPERATOR
from shared.media.notifications.notification_endpoints import set_endpoint
from tests.support.agents.agent_worker import answering_turns
from tests.support.data.media_sources import MediaSource
from tests.support.web.web_process import LOCAL_EGRESS, Front
from tests.web.a2a.asking import Client
from tests.web.a2a.conftest import give_script
from tests.web.media.conftest import Connector, make_connector, sign, sql

SCRIPT = """
rules:
  - match: {text: ask}
    steps:
      - input_required: Which photo?
      - echo: complete
  - match: {text: hang}
    steps: [{status: Hanging}, {hang: true}]
  - steps: [{echo: complete}]
"""


@dataclass(frozen=True, kw_only=True)
class DistributionClient:
    """A distribution and its agent."""

    connector: Connector

    @property
    def front(self) -> Front:
        return self.connector.front

    @property
    def path(self) -> str:
        return f"/distributions/{self.connector.id}/messages"

    @property
    def agent(self) -> Client:
        """The deployment's client for the receiving identity: it sees the tasks of the distribution's messages."""
        front, deployment = self.front, self.connector.deployment
        minted = front.post("/oauth/attributions", self.connector.authorization, json={}).json or {}
        return Client(
            front,
            f"/agents/{deployment.deployment.id}",
            front.identity.authorization(deployment),
            {"Service-Usage-Attribution": minted["attribution"]},
        )

    def push(
        self, text: str | None = "hello", authorization: str | None = None, **fields: Any
    ) -> TestResponse:
        """Push a new message, or the one that `fields` identify."""
        return self.post(authorization or self.connector.authorization, json=message(text, **fields))

    def push_signed(self, text: str = "hello", secret: str | None = None, **fields: Any) -> TestResponse:
        raw = json.dumps(message(text, **fields)).encode()
        headers = {**sign(raw, secret or self.connector.webhook_secret), "Content-Type": "application/json"}
        return self.post(data=raw, headers=headers)

    def post(self, authorization: str | None = None, **options: Any) -> TestResponse:
        return self.front.post(self.path, authorization, **options)

    def push_accepted(self, text: str | None = "hello", **fields: Any) -> dict[str, Any]:
        """Push a message that must be accepted. Return the response."""
        response = self.push(text, **fields)
        assert response.status_code == 202, response.text
        body: dict[str, Any] = parse(response.get_data())
        return body

    def push_and_wait(self, text: str = "hello", **fields: Any) -> dict[str, Any]:
        """Push a message. Return its task once the agent has replied."""
        return self.wait_for_state(self.push_accepted(text, **fields)["taskId"])

    def wait_for_state(self, task_id: str, *states: str) -> dict[str, Any]:
        """Return a task once it is in one of these states; COMPLETED by default."""
        wanted = states or ("TASK_STATE_COMPLETED",)
        deadline = time.monotonic() + 60
        while (task := self.agent.read(task_id))["status"]["state"] not in wanted:
            assert time.monotonic() < deadline, task
            time.sleep(0.02)
        return task

    def route(self) -> int:
        """Route due messages, as the worker does."""
        settings = self.front.settings
        made = MessageForwarder(settings=settings, router=self.front.services.agents.router)
        return route_due_messages(MessageDispatcher(database=self.front.services.database, forwarder=made))

    def set_endpoint(self, url: str) -> None:
        """Set the notification endpoint."""
        with self.front.services.database.transaction() as session:
            set_endpoint(
                session, self.front.settings, actor=OPERATOR, distribution_id=self.connector.id, url=url
            )

    def notifications(self, event: str) -> list[dict[str, Any]]:
        """Return the pending notifications of one event type, in order."""
        statement = "SELECT body FROM deliveries WHERE destination_id = :id AND event = :event ORDER BY id"
        rows = sql(self.front, statement, id=self.connector.id, event=event)
        return [parse(bytes(row.body)) for row in rows]

    def rows(self) -> list[Any]:
        """Return all messages of the distribution, in order."""
        statement = "SELECT * FROM distribution_messages WHERE distribution_id = :id ORDER BY id"
        return sql(self.front, statement, id=self.connector.id)


def message(text: str | None = "hello", **fields: Any) -> dict[str, Any]:
    content = {} if text is None else {"text": text}
    return {"messageId": uuid4().hex, **content, **fields}


def make_distribution_client(front: Front, script: str = SCRIPT) -> DistributionClient:
    """Create a distribution of an organization of its own."""
    connector = make_connector(front)
    give_script(front, connector.deployment, script, input_modes=("*/*",))
    return DistributionClient(connector=connector)


@pytest.fixture(scope="module")
def front_settings() -> Mapping[str, object]:
    """Attachments may be fetched from this machine."""
    return LOCAL_EGRESS


@pytest.fixture(scope="module")
def source() -> Iterator[MediaSource]:
    with MediaSource() as source:
        yield source


@pytest.fixture(scope="module")
def distribution(front: Front) -> Iterator[DistributionClient]:
    """This module's distribution, with a worker."""
    with answering_turns(front.services):
        yield make_distribution_client(front)
    front.services.agents.watch.close()
