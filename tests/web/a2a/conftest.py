"""An organization with a scripted agent, and callers with and without permission to send messages to it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from shared.a2a.behaviors.administration import BehaviorDraft, create_behavior
from shared.a2a.updates import BehaviorKind, BehaviorSettings
from shared.identity.access.authorization import OPERATOR
from shared.identity.directory.deployments import CreatedDeployment
from tests.support.agents.agent_worker import answering_turns
from tests.support.data.identity import Person
from tests.support.web.web_process import Front
from tests.web.a2a.asking import Client

SCRIPT = """
rules:
  - match: {text: ping}
    steps: [{message: pong}]
  - match: {text: work}
    steps:
      - status: Reading
      - artifact: {id: a, name: report, chunks: ["Once ", "upon ", "a time"]}
      - complete: Done
  - match: {text: ask}
    steps:
      - input_required: Which one?
      - echo: complete
  - match: {text: hang}
    steps: [{status: Hanging}, {hang: true}]
  - match: {text: fail}
    steps: [{fail: It broke}]
  - match: {text: silence}
    steps: [{silence: true}]
  - match: {message_id_prefix: error-content}
    steps: [{error: CONTENT_TYPE_NOT_SUPPORTED}]
  - match: {contains: echo}
    steps: [{echo: artifact}, {echo: complete}]
  - steps: [{complete: Fine}]
"""


@dataclass(frozen=True, kw_only=True)
class Cast:
    """The callers and the agent of the tests."""

    front: Front
    acme: UUID
    agent: CreatedDeployment
    behavior: BehaviorSettings
    member: Client
    colleague: Client
    stranger: Client
    caller_agent: CreatedDeployment

    def client(self, authorization: str, **headers: str) -> Client:
        return Client(self.front, f"/agents/{self.agent.deployment.id}", authorization, headers)

    def new_agent(self, script: str = SCRIPT, **draft: Any) -> tuple[CreatedDeployment, Client]:
        """Create another agent of Acme, and return it with the member's client."""
        created = self.front.identity.deployment(self.acme)
        give_script(self.front, created, script, **draft)
        return created, self.at(created, self.member.authorization)

    def at(self, agent: CreatedDeployment, authorization: str | None) -> Client:
        return Client(self.front, f"/agents/{agent.deployment.id}", authorization, {})

    def person(self) -> Person:
        return self.front.identity.person(self.acme)


def give_script(front: Front, agent: CreatedDeployment, script: str, **draft: Any) -> BehaviorSettings:
    """Create a scripted behavior of an agent."""
    return give_behavior_to(front, agent.deployment.id, script, **draft)


def give_behavior_to(front: Front, deployment_id: UUID, script: str | None, **draft: Any) -> BehaviorSettings:
    """Create a behavior of a deployment's agent, scripted unless the draft names another kind."""
    with front.services.database.transaction() as session:
        return create_behavior(
            session,
            actor=OPERATOR,
            deployment_id=deployment_id,
            draft=BehaviorDraft(
                **{
                    "name": "scripted",
                    "kind": BehaviorKind.SCRIPT,
                    "description": "Follows a script.",
                    "script": script,
                    **draft,
                }
            ),
        )


@pytest.fixture(scope="module")
def cast(front: Front) -> Iterator[Cast]:
    """The cast in this module's database, with a worker."""
    with answering_turns(front.services):
        yield make_cast(front)
    front.services.agents.watch.close()


def make_cast(front: Front) -> Cast:
    """Create all callers and the agent."""
    acme = front.identity.organization("Acme").id
    globex = front.identity.organization("Globex").id
    agent = front.identity.deployment(acme, "Helper")
    behavior = give_script(front, agent, SCRIPT)
    prefix = f"/agents/{agent.deployment.id}"
    people = [front.identity.person(organization) for organization in (acme, acme, globex)]
    member, colleague, stranger = (Client(front, prefix, person.authorization, {}) for person in people)
    return Cast(
        front=front,
        acme=acme,
        agent=agent,
        behavior=behavior,
        member=member,
        colleague=colleague,
        stranger=stranger,
        caller_agent=front.identity.deployment(acme, "Caller"),
    )
