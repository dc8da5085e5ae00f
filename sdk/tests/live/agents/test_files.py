"""Files in messages, and artifacts that are stored as files: their owners and their retention."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.web.files.conftest import demote

from quartermaster import Client
from quartermaster.agents import Agent, Artifact, File, FileAction
from quartermaster.agents.outputs import Failed
from quartermaster.agents.received_files import NotReadable
from quartermaster.errors import ApiError, DigestMismatch
from sdk.tests.agents.served import Served, served, status_text, text_of
from sdk.tests.live.agents.conftest import Service

UNTIL = datetime(2040, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
ACTIONS = {
    "none": None,
    "omitted": FileAction(),
    "null": FileAction(retention_expires_at=None),
    "dated": FileAction(retention_expires_at=UNTIL),
}


def make_agent(service: Service, directory: Path, **addresses: str) -> Agent:
    agent = Agent("Writer", "Writes files.", **{**service.credentials, **addresses})

    @agent.skill
    def write(text: str) -> Artifact:
        return Artifact(b"\x89PNG", "chart.png", file=ACTIONS[text])

    @agent.skill
    def write_path() -> Path:
        path = directory / "report.txt"
        path.write_text("It is a truth")
        return path

    @agent.skill
    async def write_text() -> Artifact:
        return Artifact("# Notes", "notes.md", "text/markdown", file=FileAction())

    @agent.skill
    def write_much() -> Artifact:
        return Artifact("x" * (2 << 20), "long.txt")

    @agent.skill
    def read(files: tuple[File, ...]) -> str:
        return f"{files[0].name}: {files[0].read().decode()}"

    @agent.skill
    async def read_later(files: tuple[File, ...]) -> str:
        return f"{files[0].name}: {(await files[0].aread()).decode()}"

    @agent.skill
    def read_little(files: tuple[File, ...]) -> str:
        try:
            return files[0].read(max_bytes=3).decode()
        except NotReadable as failure:
            raise Failed(str(failure)) from failure

    @agent.skill
    def upload(client: Client) -> str:
        return str(client.files.upload(b"by hand", file_name="hand.txt", media_type="text/plain").id)

    return agent


@pytest.fixture(scope="module")
def writer(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(make_agent(service, tmp_path_factory.mktemp("written"))) as writer:
        yield writer


def ask(service: Service, writer: Served, skill: str, text: str = "x", **members: Any) -> Any:
    headers = {**service.headers, "A2A-Extensions": extension(service)}
    return writer.send(text, more={"metadata": {"skillId": skill}, **members}, headers=headers)


def extension(service: Service) -> str:
    return f"{service.front.settings.base_url}/extensions/file-artifact/v1"


def stored(service: Service, task: Any) -> Any:
    """Return the service's metadata of the file that an artifact describes."""
    (artifact,) = task["artifacts"]
    assert artifact["extensions"] == [extension(service)]
    return service.file(artifact["metadata"][extension(service)]["id"])


def test_bytes_are_stored_for_the_receiving_identity_and_a_link_leaves(
    service: Service, writer: Served
) -> None:
    task = ask(service, writer, "write", "none")
    (artifact,) = task["artifacts"]
    (part,) = artifact["parts"]
    assert artifact["name"] == "chart.png"
    assert (part["filename"], part["mediaType"]) == ("chart.png", "image/png")
    assert httpx.get(part["url"]).content == b"\x89PNG"
    file = stored(service, task)
    assert file["owner"] == {"kind": "PrincipalIdentity", "id": str(service.principal.id)}
    assert file["purpose"] == "AgentArtifact"
    described = artifact["metadata"][extension(service)]
    assert described["versionId"] == file["versionId"]
    assert (described["byteSize"], described["contentSha256"]) == (4, file["metadata"]["contentSha256"])
    assert described["retentionExpiresAt"] is not None


def test_without_the_extension_there_is_the_link_alone(service: Service, writer: Served) -> None:
    task = writer.send("none", more={"metadata": {"skillId": "write"}}, headers=service.headers)
    (artifact,) = task["artifacts"]
    assert "metadata" not in artifact
    assert httpx.get(artifact["parts"][0]["url"]).content == b"\x89PNG"


def test_thirty_days_without_an_action(service: Service, writer: Served) -> None:
    deadline = stored(service, ask(service, writer, "write", "none"))["metadata"]["retentionExpiresAt"]
    expected = datetime.now(timezone.utc) + timedelta(days=30)
    assert abs(datetime.fromisoformat(deadline.replace("Z", "+00:00")) - expected) < timedelta(minutes=5)


@pytest.mark.parametrize("action", ["omitted", "null"])
def test_an_action_without_a_deadline_keeps_them_indefinitely(
    service: Service, writer: Served, action: str
) -> None:
    task = ask(service, writer, "write", action)
    assert stored(service, task)["metadata"]["retentionExpiresAt"] is None
    assert task["artifacts"][0]["metadata"][extension(service)]["retentionExpiresAt"] is None


def test_an_action_with_a_deadline_keeps_them_until_then(service: Service, writer: Served) -> None:
    file = stored(service, ask(service, writer, "write", "dated"))
    assert file["metadata"]["retentionExpiresAt"].startswith("2040-01-02T03:04:05")


@pytest.mark.parametrize(
    ("skill", "name", "media_type", "content"),
    [
        ("write_path", "report.txt", "text/plain", b"It is a truth"),
        ("write_text", "notes.md", "text/markdown", b"# Notes"),
        ("write_much", "long.txt", "text/plain", b"x" * (2 << 20)),
    ],
)
def test_paths_and_what_has_an_action_or_is_long_leave_as_files(
    service: Service, writer: Served, skill: str, name: str, media_type: str, content: bytes
) -> None:
    task = ask(service, writer, skill)
    (part,) = task["artifacts"][0]["parts"]
    assert (part["filename"], part["mediaType"]) == (name, media_type)
    assert httpx.get(part["url"]).content == content


def test_an_agent_that_may_store_nothing_fails_without_details(service: Service) -> None:
    organization = service.front.identity.organization("Other")
    created = service.front.identity.deployment(organization.id)
    demote(service.front, created)
    credentials = {
        "client_id": str(created.deployment.client_id),
        "client_secret": created.credential.secret.value,
    }
    agent = Agent("Poor", "Has no role.", **{**service.credentials, **credentials})

    @agent.skill
    def write() -> Artifact:
        return Artifact(b"x", "x.bin")

    headers = service.headers_for(created)
    with served(agent, headers) as poor:
        task = poor.send()
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert status_text(task) == "The agent could not finish this."


@pytest.mark.parametrize("skill", ["read", "read_later"])
def test_links_of_the_service_are_read(
    service: Service, writer: Served, skill: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    task = ask(service, writer, "write_path")
    (part,) = task["artifacts"][0]["parts"]
    answer = ask(service, writer, skill, parts=[part])
    assert text_of(answer) == "report.txt: It is a truth"
    httpx_lines = [record.getMessage() for record in caplog.records if record.name == "httpx"]
    assert httpx_lines
    assert not [line for line in httpx_lines if "grant=" in line]


def test_links_of_the_public_address_are_read_by_the_agents_own(
    service: Service, writer: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (part,) = ask(service, writer, "write_path")["artifacts"][0]["parts"]
    public = service.credentials["base_url"]
    agent = make_agent(service, tmp_path, base_url=public.replace("127.0.0.1", "localhost"), issuer=public)
    with served(agent) as inside:
        caplog.set_level(logging.INFO)
        assert text_of(ask(service, inside, "read", parts=[part])) == "report.txt: It is a truth"
    assert [at for at in caplog.messages if "GET http://localhost" in at and "/content" in at]


def test_what_is_larger_than_it_may_be_is_not_read(service: Service, writer: Served) -> None:
    (part,) = ask(service, writer, "write_path")["artifacts"][0]["parts"]
    answer = ask(service, writer, "read_little", parts=[part])
    assert answer["status"]["state"] == "TASK_STATE_FAILED"


def test_the_client_of_a_skill_works_for_the_receiving_identity(service: Service, writer: Served) -> None:
    file = service.file(text_of(ask(service, writer, "upload")))
    assert file["owner"]["id"] == str(service.principal.id)


def test_a_link_that_has_ended_and_other_bytes_are_said(service: Service) -> None:
    base = service.front.settings.base_url
    ended = File("a", "text/plain", url=f"{base}/files/{service.principal.id}/content?grant=x", base_url=base)
    with pytest.raises(ApiError):
        ended.read()
    changed = File("a", "text/plain", url=f"{base}/files/../healthz", base_url=base, sha256="0" * 64)
    with pytest.raises((ApiError, DigestMismatch)):
        changed.read()
