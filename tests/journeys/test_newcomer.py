"""A user's first day, from the printed credentials to a deleted file, over a real stack."""

import hashlib
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from tests.journeys.conftest import Installation, assert_nothing_left_over
from tests.support.agents.rest_clients import Client, exchange_token, open_link
from tests.support.data.inventory import end_retention, placed_paths, query
from tests.support.processes.stack import Stack, wait_until

pytestmark = pytest.mark.usefixtures("workers")


def test_newcomer_uploads_shares_replaces_renews_and_deletes(installation: Installation) -> None:
    stack, front, owner = installation.stack, installation.front, installation.owner
    agent = Client(front.url, exchange_token(front.url, installation.credentials))
    first, second = b"the first report" * 1000, b"the second report" * 1000
    deadline = write_time(datetime.now(UTC) + timedelta(days=1))

    uploaded = agent.upload(first, operation=uuid4(), retentionExpiresAt=deadline)
    assert uploaded.status_code == 201, uploaded.text
    file = uploaded.json()
    assert file["metadata"]["contentSha256"] == hashlib.sha256(first).hexdigest()

    granted = agent.grant(file["id"], file["versionId"])
    assert granted.status_code == 201
    link = granted.json()["url"]
    assert open_link(link, via=front.url).content == first
    part = open_link(link, via=front.url, headers={"Range": "bytes=4-8"})
    assert (part.status_code, part.content) == (206, b"first")

    replaced = agent.replace(second, operation=uuid4(), current=file)
    assert (replaced.status_code, replaced.json()["revision"]) == (200, 2)
    assert agent.download(file["id"]).content == second
    assert open_link(link, via=front.url).content == first

    renewed = agent.renew(file["id"], None)
    assert renewed.json()["metadata"]["retentionExpiresAt"] is None

    versions = [file["versionId"], replaced.json()["versionId"]]
    wait_until(lambda: states(stack, versions) == ["live", "live"], "both versions are placed")
    assert set(versions) <= placed_paths(stack.blobs).keys()

    assert agent.delete(file["id"], operation=uuid4()).status_code == 403
    assert owner.delete(file["id"], operation=uuid4()).json()["availability"] == "Deleted"
    assert open_link(link, via=front.url).status_code == 410
    assert agent.read(file["id"]).json()["availability"] == "Deleted"
    wait_until(lambda: states(stack, versions) == [], "both versions are collected")
    assert not set(versions) & placed_paths(stack.blobs).keys()
    assert_nothing_left_over(stack)


def test_content_is_gone_at_its_deadline_and_its_bytes_soon_after(
    stack: Stack, agent: Client, owner: Client
) -> None:
    deadline = datetime.now(UTC) + timedelta(days=1)
    file = agent.upload(b"brief", operation=uuid4(), retentionExpiresAt=write_time(deadline)).json()
    link = agent.grant(file["id"], file["versionId"]).json()["url"]
    end_retention(stack, file["id"])
    assert agent.download(file["id"]).status_code == 410
    assert open_link(link, via=agent.url).status_code == 410
    assert agent.renew(file["id"], None).json()["code"] == "file_expired"
    assert agent.read(file["id"]).json()["availability"] == "Expired"
    assert_nothing_left_over(stack)
    assert states(stack, [file["versionId"]]) == []


def states(stack: Stack, versions: list[str]) -> list[str]:
    """Return the states of the versions' blobs that still have a row."""
    rows = query(stack, "SELECT state FROM blobs WHERE version_id::text = ANY(%s)", (versions,))
    return [row[0] for row in rows]


def write_time(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
