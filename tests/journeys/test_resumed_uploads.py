"""Resumable uploads through cut connections and `kill -9` of a web process: no acknowledged byte is lost."""

import os
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
import requests

from tests.journeys.conftest import assert_nothing_left_over
from tests.support.agents.rest_clients import Client
from tests.support.data.inventory import query
from tests.support.processes.crashing_web_process import DoomedFront
from tests.support.processes.stack import Stack, wait_until

pytestmark = pytest.mark.usefixtures("workers")

MEBIBYTE = 1 << 20
CONTENT = os.urandom(10 * MEBIBYTE)  # Two pieces and a remainder.
PIECE = ("upload.begun", "upload.opened", "upload.received", "upload.sealed", "upload.before_commit")
KEPT = ("jobs.before_publish", "upload.committed", "resumable.advanced")


@pytest.fixture(scope="module")
def doomed(stack: Stack) -> Iterator[DoomedFront]:
    """Run a web process that dies on demand."""
    with DoomedFront(stack).running() as doomed:
        yield doomed


def begin(agent: Client, byte_size: int = len(CONTENT)) -> str:
    begun = agent.begin(byte_size, operation=uuid4())
    assert begun.status_code == 201, begun.text
    return str(urlsplit(begun.headers["Location"]).path)


@pytest.mark.parametrize("point", [*PIECE, *KEPT, *(f"{point}=1" for point in (*PIECE, *KEPT))])
def test_upload_resumes_at_the_stored_offset_whenever_its_web_process_dies(
    stack: Stack, doomed: DoomedFront, agent: Client, point: str
) -> None:
    path = begin(agent)
    told = int(agent.append(path, 0, CONTENT[:1000]).headers["Upload-Offset"])
    with pytest.raises(requests.ConnectionError):
        agent.append(path, told, CONTENT[told:], via=doomed.armed(point).url)
    offset = agent.offset(path)
    pieces = (point.partition("=")[0] in KEPT) + point.endswith("=1")
    assert offset == min(told + pieces * 8 * MEBIBYTE, len(CONTENT))
    stored = agent.append(path, offset, CONTENT[offset:], is_last=True)
    assert stored.status_code == 201, stored.text
    assert agent.download(stored.json()["id"]).content == CONTENT
    assert_nothing_left_over(stack)


@pytest.mark.parametrize("point", [*PIECE, "jobs.before_publish", "upload.committed", "resumable.completed"])
def test_completion_has_one_effect_whenever_its_web_process_dies(
    stack: Stack, doomed: DoomedFront, agent: Client, point: str
) -> None:
    path = begin(agent, 100_000)
    agent.append(path, 0, CONTENT[:100_000])
    with pytest.raises(requests.ConnectionError):
        agent.append(path, 100_000, b"", is_last=True, via=doomed.armed(point).url)
    stored = agent.append(path, 100_000, b"", is_last=True)
    assert stored.json()["replayed"] is (point not in PIECE), stored.text
    assert stored.status_code == (201 if point in PIECE else 200)
    assert agent.download(stored.json()["id"]).content == CONTENT[:100_000]
    assert_nothing_left_over(stack)


@pytest.mark.parametrize("sent", [600_000, 9 * MEBIBYTE])
def test_cut_connection_keeps_the_received_bytes(stack: Stack, agent: Client, sent: int) -> None:
    path = begin(agent)
    with socket.create_connection(("127.0.0.1", urlsplit(agent.url).port or 0)) as connection:
        connection.sendall(head_of(agent, path) + CONTENT[:sent])
    kept = "SELECT received_bytes FROM resumable_uploads WHERE id = %s"
    wait_until(lambda: query(stack, kept, (path.rpartition("/")[2],))[0][0] == sent, "what came is kept")
    stored = agent.append(path, agent.offset(path), CONTENT[sent:], is_last=True)
    assert agent.download(stored.json()["id"]).content == CONTENT
    assert_nothing_left_over(stack)


def test_hanging_request_is_superseded_by_the_next(stack: Stack, agent: Client) -> None:
    path = begin(agent)
    with socket.create_connection(("127.0.0.1", urlsplit(agent.url).port or 0)) as connection:
        connection.settimeout(90)
        connection.sendall(head_of(agent, path) + CONTENT[: 8 * MEBIBYTE + 1000])
        kept = "SELECT received_bytes FROM resumable_uploads WHERE id = %s"
        wait_until(lambda: query(stack, kept, (path.rpartition("/")[2],))[0][0] > 0, "a piece is kept")
        offset = agent.offset(path)
        stored = agent.append(path, offset, CONTENT[offset:], is_last=True)
        assert agent.download(stored.json()["id"]).content == CONTENT
        connection.sendall(CONTENT[8 * MEBIBYTE + 1000 :])
        assert connection.recv(100).startswith((b"HTTP/1.1 409 ", b"HTTP/1.1 410 "))
    assert_nothing_left_over(stack)


def head_of(agent: Client, path: str) -> bytes:
    lines = (
        f"PATCH {path} HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {agent.token}",
        "Content-Type: application/partial-upload",
        f"Content-Length: {len(CONTENT)}",
        "Upload-Offset: 0",
        "Upload-Complete: ?0",
    )
    return "\r\n".join([*lines, "", ""]).encode()
