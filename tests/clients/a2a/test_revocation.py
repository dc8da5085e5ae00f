"""Streams and waits of a caller end within seconds of the caller's revocation; the streams of others go on."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from shared.identity.access.authorization import OPERATOR
from shared.identity.credentials.api_keys import revoke_api_key
from shared.identity.directory.organizations import suspend_organization
from tests.clients.a2a.conftest import Agents, give_script
from tests.support.data.identity import Person
from tests.support.data.inventory import query
from tests.support.processes.stack import wait_until
from tests.support.web.event_lines import event_lines

SCRIPT = "rules:\n- steps: [{status: Hanging}, {hang: true}]"
HEADERS = {"A2A-Version": "1.0", "Content-Type": "application/json"}


@pytest.fixture
def person(agents: Agents) -> Person:
    """Create a user of a new organization whose agent hangs."""
    identity = agents.service.identity
    return identity.person(identity.organization().id, bound=True)


@pytest.fixture
def address(agents: Agents, person: Person) -> str:
    service = agents.service
    created = service.identity.deployment(organization_of(agents, person))
    give_script(service, created.deployment.id, SCRIPT)
    return f"{service.front.url}/agents/{created.deployment.id}"


def organization_of(agents: Agents, person: Person) -> UUID:
    statement = "SELECT organization_id::text FROM memberships WHERE user_id = %s"
    return UUID(query(agents.service.stack, statement, (person.user_id,))[0][0])


def revoke(agents: Agents, person: Person) -> None:
    statement = "SELECT id::text FROM api_keys WHERE user_id = %s"
    key_id = UUID(query(agents.service.stack, statement, (person.user_id,))[0][0])
    with agents.service.database.transaction() as session:
        revoke_api_key(session, actor=OPERATOR, key_id=key_id)


def message() -> dict[str, Any]:
    return {"message": {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": "hello"}]}}


def events(answer: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    name = "message"
    for line in event_lines(answer):
        if line.startswith("event: "):
            name = line[7:]
        if line.startswith("data: "):
            yield name, json.loads(line[6:])


def connect(person: Person) -> httpx.Client:
    return httpx.Client(headers={**HEADERS, "Authorization": person.authorization}, timeout=60)


@contextmanager
def streaming(
    person: Person, address: str
) -> Iterator[tuple[httpx.Client, Iterator[tuple[str, dict[str, Any]]]]]:
    """Send a message. Yield the client and the events of the response."""
    with (
        connect(person) as client,
        client.stream("POST", f"{address}/message:stream", json=message()) as answer,
    ):
        yield client, events(answer)


def test_a_stream_ends_with_an_error_when_its_key_is_revoked(
    agents: Agents, person: Person, address: str
) -> None:
    with streaming(person, address) as (client, coming):
        task_id = next(coming)[1]["task"]["id"]
        with client.stream("POST", f"{address}/tasks/{task_id}:subscribe") as subscription:
            following = events(subscription)
            next(following)
            revoke(agents, person)
            ends = [list(coming)[-1], list(following)[-1]]
    assert [(name, body["error"]["code"]) for name, body in ends] == [("error", 401)] * 2


def test_a_stream_ends_when_its_organization_is_suspended(
    agents: Agents, person: Person, address: str
) -> None:
    with streaming(person, address) as (_, coming):
        next(coming)
        with agents.service.database.transaction() as session:
            suspend_organization(session, actor=OPERATOR, organization_id=organization_of(agents, person))
        # Its turn ends as well: whichever is detected first ends the stream.
        name, body = list(coming)[-1]
    assert name == "error" or body["statusUpdate"]["status"]["state"] == "TASK_STATE_FAILED"


def test_a_wait_is_refused_when_its_key_is_revoked(agents: Agents, person: Person, address: str) -> None:
    running = "SELECT 1 FROM task_turns WHERE state = 'running' AND payer_id = %s"
    organization_id = organization_of(agents, person)
    with connect(person) as client, ThreadPoolExecutor(1) as threads:
        answer = threads.submit(lambda: client.post(f"{address}/message:send", json=message()))
        wait_until(lambda: query(agents.service.stack, running, (organization_id,)), "the turn")
        revoke(agents, person)
        assert answer.result(60).status_code == 401
