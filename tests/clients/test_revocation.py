"""Calls under way end within seconds when their caller is revoked, in the client's own words, and are settled."""

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import openai
import pytest
import requests
import urllib3

from shared.identity.api_keys import revoke_api_key
from shared.identity.authorization import OPERATOR
from shared.identity.deployments import disable_deployment
from shared.identity.organizations import suspend_organization
from shared.identity.role_bindings import unbind_role
from shared.identity.running_work import CHECK_SECONDS
from tests.clients.conftest import connect
from tests.support.inventory import query
from tests.support.model_service import ModelService
from tests.support.stack import wait_until

ENDLESS = "!delay 200\n!tokens 600"
"""Two minutes of reply."""
CREDITS = 1_000_000
LARGE_BYTES = 64 << 20
"""More than the kernel takes for a client that does not read."""
Revoke = Callable[[], object]


class Revocable:
    """A new organization with a caller, and what ends them."""

    def __init__(self, service: ModelService) -> None:
        self.service = service
        self.organization_id = service.identity.organization().id
        service.give_credits(self.organization_id, CREDITS)
        self.person = service.identity.person(self.organization_id, bound=True)
        self.deployment = service.identity.deployment(self.organization_id)

    def revoke_key(self) -> None:
        key_id = UUID(
            query(
                self.service.stack, "SELECT id::text FROM api_keys WHERE user_id = %s", (self.person.user_id,)
            )[0][0]
        )
        with self.service.database.transaction() as session:
            revoke_api_key(session, by=OPERATOR, key_id=key_id)

    def suspend(self) -> None:
        with self.service.database.transaction() as session:
            suspend_organization(session, by=OPERATOR, organization_id=self.organization_id)

    def disable(self) -> None:
        with self.service.database.transaction() as session:
            disable_deployment(session, by=OPERATOR, deployment_id=self.deployment.deployment.id)

    def take_role(self) -> None:
        daemon_id = self.deployment.deployment.daemon_identity_id
        statement = "SELECT id::text FROM role_bindings WHERE subject_identity_id = %s"
        found = query(self.service.stack, statement, (daemon_id,))
        with self.service.database.transaction() as session:
            for (binding_id,) in found:
                unbind_role(session, by=OPERATOR, binding_id=UUID(binding_id))


@pytest.fixture
def revocable(service: ModelService) -> Iterator[Revocable]:
    revocable = Revocable(service)
    yield revocable
    service.wait_until_settled()


@pytest.mark.parametrize(
    ("end", "code"), [("key", "invalid_api_key"), ("organization", "organization_suspended")]
)
def test_a_chat_stream_ends_with_an_error(revocable: Revocable, end: str, code: str) -> None:
    act = revocable.revoke_key if end == "key" else revocable.suspend
    with connect(revocable.service, revocable.person.api_key) as client:
        stream = client.chat.completions.create(
            model="scripted/echo", messages=[{"role": "user", "content": ENDLESS}], stream=True
        )
        next(stream)
        act()
        with pytest.raises(openai.APIError) as raised:
            for _ in stream:
                pass
    assert raised.value.code == code


@pytest.mark.parametrize(
    ("end", "code"), [("deployment", "invalid_api_key"), ("role", "model_authorization_denied")]
)
def test_a_stream_of_responses_ends_with_an_error(revocable: Revocable, end: str, code: str) -> None:
    token = revocable.service.identity.access_token(revocable.deployment)
    with connect(revocable.service, token) as client:
        stream = client.responses.create(model="scripted/echo", input=ENDLESS, store=False, stream=True)
        next(stream)
        act = revocable.disable if end == "deployment" else revocable.take_role
        act()
        with pytest.raises(openai.APIError) as raised:
            for _ in stream:
                pass
    assert raised.value.code == code


def test_a_plain_call_is_refused_and_its_upstream_cancelled(revocable: Revocable) -> None:
    with (
        connect(revocable.service, revocable.person.api_key, max_retries=0) as client,
        ThreadPoolExecutor(1) as threads,
    ):
        messages: Any = [{"role": "user", "content": ENDLESS}]
        answer = threads.submit(
            lambda: client.chat.completions.create(model="scripted/echo", messages=messages)
        )
        wait_until(lambda: "dispatched" in revocable.service.invocations().values(), "the call")
        revocable.revoke_key()
        with pytest.raises(openai.AuthenticationError):
            answer.result(60)


@pytest.mark.parametrize("end", ["deployment", "role"])
def test_a_download_is_broken_off(revocable: Revocable, end: str) -> None:
    authorization = {"Authorization": revocable.service.identity.authorization(revocable.deployment)}
    url, content = revocable.service.front.url, bytes(LARGE_BYTES)
    uploaded = requests.post(
        f"{url}/files/agent-artifacts",
        params={"operationId": str(uuid4()), "byteSize": str(len(content))},
        headers=authorization,
        files={"file": ("zeros.bin", content, "application/octet-stream")},
        timeout=60,
    )
    path = f"{url}/files/{uploaded.json()['id']}/content"
    with requests.get(path, headers=authorization, stream=True, timeout=60) as answer:
        received = len(answer.raw.read(1 << 20))
        act = revocable.disable if end == "deployment" else revocable.take_role
        act()
        time.sleep(2 * CHECK_SECONDS)
        with contextlib.suppress(urllib3.exceptions.HTTPError, OSError):
            while piece := answer.raw.read(1 << 20):
                received += len(piece)
    assert received < LARGE_BYTES
