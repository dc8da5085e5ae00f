"""Running calls end within seconds of their caller's revocation, with the client's own error, and are settled."""

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any
from uuid import UUID, uuid4

import openai
import pytest
import requests
import urllib3
from sqlalchemy import text

from shared.identity.access.authorization import OPERATOR
from shared.identity.authentication.revocation_watcher import CHECK_SECONDS
from shared.identity.credentials.api_keys import revoke_api_key
from shared.identity.directory.deployments import disable_deployment
from shared.identity.directory.organizations import suspend_organization
from shared.identity.directory.role_bindings import unbind_role
from tests.clients.conftest import connect
from tests.support.data.inventory import query
from tests.support.models.model_service import ModelService
from tests.support.processes.stack import wait_until

ENDLESS = "!delay 200\n!tokens 600"
"""The reply takes two minutes."""
CREDITS = 1_000_000
LARGE_BYTES = 64 << 20
"""More than the kernel buffers for a client that does not read."""
OF_THE_CALLER = ("deployment", "role")
OF_A_LINK = ("grant", "file", "organization")
Revoke = Callable[[], object]


class Revocable:
    """A new organization with a caller, and the ways to revoke it."""

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
            revoke_api_key(session, actor=OPERATOR, key_id=key_id)

    def suspend(self) -> None:
        with self.service.database.transaction() as session:
            suspend_organization(session, actor=OPERATOR, organization_id=self.organization_id)

    def disable(self) -> None:
        with self.service.database.transaction() as session:
            disable_deployment(session, actor=OPERATOR, deployment_id=self.deployment.deployment.id)

    def take_role(self) -> None:
        daemon_id = self.deployment.deployment.daemon_identity_id
        statement = "SELECT id::text FROM role_bindings WHERE subject_identity_id = %s"
        found = query(self.service.stack, statement, (daemon_id,))
        with self.service.database.transaction() as session:
            for (binding_id,) in found:
                unbind_role(session, actor=OPERATOR, binding_id=UUID(binding_id))

    @cached_property
    def authorization(self) -> dict[str, str]:
        return {"Authorization": self.service.identity.authorization(self.deployment)}

    def ask(self, method: str, url: str, **options: Any) -> requests.Response:
        answer = requests.request(method, url, headers=self.authorization, timeout=60, **options)
        answer.raise_for_status()
        return answer

    def store_zeros(self) -> str:
        url, content = f"{self.service.front.url}/files", bytes(LARGE_BYTES)
        named = {"operationId": str(uuid4()), "byteSize": str(len(content))}
        part = {"file": ("zeros.bin", content, "application/octet-stream")}
        stored = self.ask("POST", f"{url}/agent-artifacts", params=named, files=part)
        return f"{url}/{stored.json()['id']}"

    def version_of(self, file_url: str) -> str:
        return str(self.ask("GET", file_url).json()["versionId"])

    def change_files(self, statement: str) -> None:
        with self.service.database.transaction() as session:
            session.execute(text(statement), {"id": self.organization_id})

    def delete_files(self) -> None:
        self.change_files("UPDATE files SET state = 'Deleted', ended_at = now() WHERE organization_id = :id")

    def let_grants_expire(self) -> None:
        self.change_files(
            "UPDATE read_grants SET access_expires_at = now() - interval '1 s'"
            " FROM files WHERE files.id = file_id AND organization_id = :id"
        )


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


class Download:
    """A download that has begun, and the revocation that happens during it."""

    def __init__(self, service: ModelService, end: str) -> None:
        revocable = Revocable(service)
        file_url = revocable.store_zeros()
        url, headers = f"{file_url}/content", revocable.authorization
        if end not in OF_THE_CALLER:
            version = revocable.version_of(file_url)
            grant = revocable.ask("POST", f"{file_url}/versions/{version}/grants").json()
            url, headers = grant["url"], {}
        acts: dict[str, Revoke] = {
            "deployment": revocable.disable,
            "role": revocable.take_role,
            "grant": lambda: revocable.ask("DELETE", f"{file_url}/grants/{grant['grantId']}"),
            "file": revocable.delete_files,
            "organization": revocable.suspend,
            "expiry": revocable.let_grants_expire,
        }
        self.act = acts[end]
        self._answer = requests.get(url, headers=headers, stream=True, timeout=60)
        self._received = len(self._answer.raw.read(1 << 20))

    def read_rest(self) -> int:
        """Read to the end. Return the total number of bytes received."""
        with self._answer, contextlib.suppress(urllib3.exceptions.HTTPError, OSError):
            while piece := self._answer.raw.read(1 << 20):
                self._received += len(piece)
        return self._received


@pytest.fixture(scope="module")
def received(service: ModelService) -> dict[str, int]:
    """Return how many bytes each download received.

    All revocations happen at once, so that the test waits for their detection only once.
    """
    downloads = {end: Download(service, end) for end in (*OF_THE_CALLER, *OF_A_LINK, "expiry")}
    for download in downloads.values():
        download.act()
    time.sleep(2 * CHECK_SECONDS)
    return {end: download.read_rest() for end, download in downloads.items()}


@pytest.mark.parametrize("end", OF_THE_CALLER)
def test_a_download_is_broken_off(received: dict[str, int], end: str) -> None:
    assert received[end] < LARGE_BYTES


@pytest.mark.parametrize("end", OF_A_LINK)
def test_a_download_by_a_link_is_broken_off(received: dict[str, int], end: str) -> None:
    assert received[end] < LARGE_BYTES


def test_a_download_by_a_link_that_expires_meanwhile_runs_to_its_end(received: dict[str, int]) -> None:
    assert received["expiry"] == LARGE_BYTES
