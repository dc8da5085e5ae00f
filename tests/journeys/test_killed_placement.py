"""`kill -9` of the worker that places content, at every step: readers see no difference, and the next worker finishes.

Only the worker that a test starts runs placements, so that the armed worker receives them.
"""

import signal
from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.journeys.conftest import assert_nothing_left_over, run_until_dead
from tests.support.agents.rest_clients import Client
from tests.support.data.inventory import connect, query, request_sweeps
from tests.support.processes.stack import Stack, wait_until

CONTENT = b"content" * 10_000
_WAITING_FOR_LOCK = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@pytest.fixture(scope="module", autouse=True)
def _background(stack: Stack) -> Iterator[None]:
    with stack.running(stack.worker("background")):
        yield


def test_content_is_readable_and_placed_once_whenever_its_worker_dies(stack: Stack, agent: Client) -> None:
    files = []
    for point in ("placement.claimed", "placement.placed", "placement.recorded"):
        files.append(agent.upload(CONTENT, operation=uuid4()).json())
        run_until_dead(stack, "files", point)
        assert agent.download(files[-1]["id"]).content == CONTENT
    with stack.running(stack.worker("files")):
        assert_nothing_left_over(stack)
    for file in files:
        assert agent.download(file["id"]).content == CONTENT


def test_terminating_worker_finishes_its_current_placement(stack: Stack, agent: Client) -> None:
    file = agent.upload(CONTENT, operation=uuid4()).json()
    worker = stack.worker("files")
    with stack.running(worker), connect(stack) as connection, connection.cursor() as cursor:
        wait_until(lambda: worker.has_logged("ready."), "the worker is ready")
        cursor.execute("BEGIN; LOCK TABLE blobs IN EXCLUSIVE MODE")
        request_sweeps(stack)
        wait_until(lambda: query(stack, _WAITING_FOR_LOCK)[0][0] > 1, "both workers wait")
        worker.send_signal(signal.SIGTERM)
        wait_until(lambda: worker.has_logged("Warm shutdown"), "the worker has heard")
        cursor.execute("COMMIT")
        assert worker.wait_for_end() == 0
    assert state_of(stack, file["versionId"]) == "live"


def state_of(stack: Stack, version_id: str) -> str:
    state: str = query(stack, "SELECT state FROM blobs WHERE version_id = %s", (version_id,))[0][0]
    return state
