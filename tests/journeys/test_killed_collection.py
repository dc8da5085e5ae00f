"""`kill -9` of the worker that removes content, at every step: the next one finishes the work, and nothing is left.

Only the worker that a test starts serves removals, so that the armed one gets them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from shared.ids import new_id
from tests.journeys.conftest import assert_nothing_left_over, run_until_dead
from tests.support.agents import Client
from tests.support.inventory import query
from tests.support.stack import Stack, wait_until

CONTENT = b"content" * 10_000


@pytest.fixture(scope="module", autouse=True)
def _placement(stack: Stack) -> Iterator[None]:
    with stack.running(stack.worker("files")):
        yield


@pytest.mark.parametrize("point", ["collection.claimed", "collection.removed", "collection.recorded"])
def test_deleted_bytes_are_collected_whenever_the_worker_dies(
    stack: Stack, agent: Client, owner: Client, point: str
) -> None:
    file = agent.upload(CONTENT, operation=uuid4()).json()
    owner.delete(file["id"], operation=uuid4())
    run_until_dead(stack, "background", point)
    assert agent.download(file["id"]).status_code == 410
    with stack.running(stack.worker("background")):
        assert_nothing_left_over(stack)
    assert query(stack, "SELECT 1 FROM blobs WHERE version_id = %s", (file["versionId"],)) == []


@pytest.mark.parametrize("point", ["expiry.before_commit", "expiry.expired", "collection.removed"])
def test_expired_bytes_are_collected_whenever_the_worker_dies(
    stack: Stack, agent: Client, point: str
) -> None:
    deadline = (datetime.now(UTC) + timedelta(seconds=0.5)).isoformat().replace("+00:00", "Z")
    file = agent.upload(CONTENT, operation=uuid4(), retentionExpiresAt=deadline).json()
    wait_until(lambda: agent.download(file["id"]).status_code == 410, "the deadline passes")
    run_until_dead(stack, "background", point)
    with stack.running(stack.worker("background")):
        assert_nothing_left_over(stack)
    assert agent.read(file["id"]).json()["availability"] == "Expired"
    assert query(stack, "SELECT 1 FROM blobs WHERE version_id = %s", (file["versionId"],)) == []


@pytest.mark.parametrize("point", ["sweep.doomed", "sweep.discarded"])
def test_bytes_without_an_upload_are_swept_whenever_the_worker_dies(stack: Stack, point: str) -> None:
    abandoned = stack.blobs / "staging" / str(new_id())
    abandoned.write_bytes(b"left by a dead front")
    run_until_dead(stack, "background", point)
    with stack.running(stack.worker("background")):
        assert_nothing_left_over(stack)
    assert not abandoned.exists()
