"""`kill -9` of the worker that removes content, at every step: the next worker finishes, and nothing is left.

Only the worker that a test starts runs removals, so that the armed worker receives them.
"""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from shared.ids import new_id
from tests.journeys.conftest import assert_nothing_left_over, run_until_dead
from tests.support.agents.rest_clients import Client
from tests.support.data.inventory import end_retention, query, settle
from tests.support.processes.stack import Stack, wait_until

CONTENT = b"content" * 10_000


@pytest.fixture(scope="module", autouse=True)
def _placement(stack: Stack) -> Iterator[None]:
    with stack.running(stack.worker("files")):
        yield


def test_deleted_bytes_are_collected_whenever_the_worker_dies(
    stack: Stack, agent: Client, owner: Client
) -> None:
    files = []
    for point in ("collection.claimed", "collection.removed", "collection.recorded"):
        files.append(agent.upload(CONTENT, operation=uuid4()).json())
        owner.delete(files[-1]["id"], operation=uuid4())
        run_until_dead(stack, "background", point)
        assert agent.download(files[-1]["id"]).json()["code"] == "file_deleted"
    assert_collected(stack, files)


def test_expired_bytes_are_collected_whenever_the_worker_dies(stack: Stack, agent: Client) -> None:
    files = []
    for point in ("expiry.before_commit", "expiry.expired", "collection.removed"):
        files.append(agent.upload(CONTENT, operation=uuid4()).json())
        end_retention(stack, files[-1]["id"])
        run_until_dead(stack, "background", point)
        assert agent.download(files[-1]["id"]).json()["code"] == "file_expired"
    assert_collected(stack, files)


def test_bytes_without_an_upload_are_swept_whenever_the_worker_dies(stack: Stack) -> None:
    for point in ("sweep.doomed", "sweep.discarded"):
        (stack.blobs / "staging" / str(new_id())).write_bytes(b"left by a dead front")
        run_until_dead(stack, "background", point)
    assert_collected(stack, [])


def assert_collected(stack: Stack, files: list[dict[str, str]]) -> None:
    """Let a worker finish, and check that nothing of these files' bytes is left, in rows or in the store."""
    versions = [file["versionId"] for file in files]

    def is_collected() -> bool:
        settle(stack)
        return query(stack, "SELECT 1 FROM blobs WHERE version_id::text = ANY(%s)", (versions,)) == []

    with stack.running(stack.worker("background")):
        assert_nothing_left_over(stack)
        # A sweep that listed bytes before their removal claims them by a row, which is kept for a minute.
        wait_until(is_collected, "no row of their content is left")
