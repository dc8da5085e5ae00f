"""`kill -9` of a web process at every step of every write: after the client's retry there is one effect or none.

A second web process is armed for one fault point and dies there. The retry has the same operationId and goes to the
first.
"""

import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
import requests

from tests.journeys.conftest import assert_nothing_left_over
from tests.journeys.raw_uploads import raw_upload
from tests.support.agents.rest_clients import Client
from tests.support.data.inventory import query, settle, staged_names, wait_until_receiving
from tests.support.processes.crashing_web_process import DoomedFront
from tests.support.processes.stack import Service, Stack, free_port, wait_until

pytestmark = pytest.mark.usefixtures("workers")

BEFORE_COMMIT = ("upload.begun", "upload.opened", "upload.received", "upload.sealed", "upload.before_commit")
AFTER_COMMIT = ("jobs.before_publish", "upload.committed")
CONTENT = os.urandom(300_000)


@pytest.fixture(scope="module")
def doomed(stack: Stack) -> Iterator[DoomedFront]:
    """Run a web process that dies on demand."""
    with DoomedFront(stack).running() as doomed:
        yield doomed


def assert_no_answer(call: object, front: Service, *arguments: object, **more: object) -> None:
    with pytest.raises(requests.ConnectionError):
        call(*arguments, via=front.url, **more)  # type: ignore[operator]


@pytest.mark.parametrize("point", BEFORE_COMMIT + AFTER_COMMIT)
def test_upload_has_one_effect_whenever_its_web_process_dies(
    stack: Stack, doomed: DoomedFront, agent: Client, point: str
) -> None:
    operation = uuid4()
    assert_no_answer(agent.upload, doomed.armed(point), CONTENT, operation=operation)
    retried = agent.upload(CONTENT, operation=operation)
    assert retried.status_code == (200 if point in AFTER_COMMIT else 201), retried.text
    assert retried.json()["replayed"] is (point in AFTER_COMMIT)
    assert_nothing_left_over(stack)
    assert agent.download(retried.json()["id"]).content == CONTENT
    assert count_of("files", stack, retried.json()["id"]) == 1


@pytest.mark.parametrize("point", BEFORE_COMMIT + AFTER_COMMIT)
def test_replace_has_one_effect_whenever_its_web_process_dies(
    stack: Stack, doomed: DoomedFront, agent: Client, point: str
) -> None:
    file = agent.upload(b"before", operation=uuid4()).json()
    operation = uuid4()
    assert_no_answer(agent.replace, doomed.armed(point), CONTENT, operation=operation, current=file)
    retried = agent.replace(CONTENT, operation=operation, current=file)
    assert (retried.status_code, retried.json()["revision"]) == (200, 2)
    assert retried.json()["replayed"] is (point in AFTER_COMMIT)
    assert_nothing_left_over(stack)
    assert agent.download(file["id"]).content == CONTENT
    assert agent.download(file["id"], file["versionId"]).content == b"before"
    assert count_of("file_versions", stack, file["id"]) == 2


@pytest.mark.parametrize("point", ["delete.before_commit", "jobs.before_publish", "delete.committed"])
def test_delete_has_one_effect_whenever_its_web_process_dies(
    stack: Stack, doomed: DoomedFront, agent: Client, owner: Client, point: str
) -> None:
    file = agent.upload(b"short-lived", operation=uuid4()).json()
    operation = uuid4()
    assert_no_answer(owner.delete, doomed.armed(point), file["id"], operation=operation)
    if point == "delete.before_commit":
        assert agent.download(file["id"]).content == b"short-lived"
    retried = owner.delete(file["id"], operation=operation)
    assert retried.json()["replayed"] is (point != "delete.before_commit")
    assert agent.download(file["id"]).json()["code"] == "file_deleted"
    assert_nothing_left_over(stack)
    assert count_of("blobs", stack, file["versionId"]) == 0


@pytest.mark.parametrize("point", ["renew.before_commit", "renew.committed"])
def test_renewal_is_complete_or_absent_whenever_its_web_process_dies(
    stack: Stack, doomed: DoomedFront, agent: Client, point: str
) -> None:
    first, later = (write_time(datetime.now(UTC) + timedelta(days=days)) for days in (1, 2))
    file = agent.upload(b"renewed", operation=uuid4(), retentionExpiresAt=first).json()
    assert_no_answer(agent.renew, doomed.armed(point), file["id"], later)
    deadline = agent.read(file["id"]).json()["metadata"]["retentionExpiresAt"]
    assert deadline == (first if point == "renew.before_commit" else later)
    assert agent.renew(file["id"], later).json()["metadata"]["retentionExpiresAt"] == later


def test_upload_whose_web_process_dies_during_the_body_leaves_nothing(stack: Stack, agent: Client) -> None:
    settle(stack)  # Drain first: an earlier upload may be staged until a worker has placed it.
    front = stack.web(port=free_port())
    with stack.running(front):
        head, body = raw_upload(agent, b"x" * 1_000_000)
        with socket.create_connection(("127.0.0.1", front.port or 0)) as connection:
            connection.sendall(head + body[:600_000])
            wait_until_receiving(stack.blobs)
            front.kill()
    assert len(staged_names(stack.blobs)) == 1
    assert_nothing_left_over(stack)


def test_web_process_finishes_an_upload_before_it_terminates(stack: Stack, agent: Client) -> None:
    settle(stack)  # Drain first: an earlier upload may be staged until a worker has placed it.
    front = stack.web(port=free_port())
    with stack.running(front):
        head, body = raw_upload(agent, b"x" * 1_000_000)
        with socket.create_connection(("127.0.0.1", front.port or 0)) as connection:
            connection.settimeout(90)
            connection.sendall(head + body[:600_000])
            wait_until_receiving(stack.blobs)
            front.send_signal(15)
            wait_until(lambda: not front.is_answering(), "the front takes no more requests")
            connection.sendall(body[600_000:])
            assert connection.recv(100).startswith(b"HTTP/1.1 201 ")
        assert front.wait_for_end() == 0
    assert_nothing_left_over(stack)


def count_of(table: str, stack: Stack, key: str) -> int:
    column = {"files": "id", "file_versions": "file_id", "blobs": "version_id"}[table]
    count: int = query(stack, f"SELECT count(*) FROM {table} WHERE {column} = %s", (key,))[0][0]
    return count


def write_time(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
