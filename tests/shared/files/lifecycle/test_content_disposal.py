"""A file ends at the cost of a small one; its content is removed in batches, by organizations in turn."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from uuid import UUID

import pytest
from sqlalchemy import text

from shared.errors import DomainError
from shared.files.backlog import measure_backlog
from shared.files.blobs.base import Blob, BlobStoreUnavailable
from shared.files.errors import FileDeleted
from shared.files.lifecycle import content_disposal, garbage_collection
from shared.files.lifecycle.expiry import expire_due
from shared.files.lifecycle.garbage_collection import collect_garbage
from shared.files.resources import Receipt
from shared.runtime.batches import budget
from tests.shared.files.conftest import Shelf, caller_with_everything
from tests.support.data.query_plans import explain
from tests.support.processes.simulated_deaths import Died

AT_ONCE, BATCH = 2, 3
pytestmark = pytest.mark.parametrize("shelf", ["local"], indirect=True)


@pytest.fixture(autouse=True)
def _little_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_disposal, "AT_ONCE", AT_ONCE)
    monkeypatch.setattr(garbage_collection, "BATCH_SIZE", BATCH)


def with_versions(shelf: Shelf, count: int) -> Receipt:
    """Create a file with so many versions; return the newest."""
    newest = shelf.placed()
    for _ in range(count - 1):
        newest = shelf.replace(newest)
    return newest


def count_doomed(shelf: Shelf) -> int:
    return int(shelf.sql("SELECT count(*) FROM blobs WHERE state = 'doomed'")[0][0])


def count_versions_left(shelf: Shelf, file: Receipt) -> int:
    left = "SELECT count(*) FROM blobs JOIN file_versions v ON v.id = version_id WHERE v.file_id = :id"
    return int(shelf.sql(left, id=file.version.file_id)[0][0])


def count_waiting(shelf: Shelf) -> int:
    with shelf.database.autocommit() as session:
        return next(at.rows for at in measure_backlog(session) if at.state == "doomed")


def test_a_delete_dooms_few_versions_itself_and_leaves_many_to_the_collector(shelf: Shelf) -> None:
    few, many = with_versions(shelf, AT_ONCE), with_versions(shelf, 2 * BATCH + 1)
    shelf.delete(few)
    assert count_doomed(shelf) == AT_ONCE
    shelf.delete(many)
    assert count_doomed(shelf) == AT_ONCE
    with pytest.raises(FileDeleted):
        shelf.replace(many)
    assert count_waiting(shelf) == AT_ONCE + 2 * BATCH + 1
    assert collect_garbage(shelf.database, shelf.store) == AT_ONCE + 2 * BATCH + 1
    assert count_waiting(shelf) == 0
    shelf.require_tidy()


def test_expiry_of_a_file_with_many_versions_does_not_delay_others(shelf: Shelf) -> None:
    many, few = with_versions(shelf, 2 * BATCH), with_versions(shelf, AT_ONCE)
    shelf.expire(many, few)
    assert expire_due(shelf.database, shelf.store) == 2
    assert count_doomed(shelf) == 0
    assert (count_versions_left(shelf, many), count_versions_left(shelf, few)) == (2 * BATCH, 0)
    shelf.work()
    shelf.require_tidy()


def test_batches_keep_their_size_and_continue_after_the_last(shelf: Shelf) -> None:
    file = with_versions(shelf, 2 * BATCH + 1)
    shelf.delete(file)
    left = [count_versions_left(shelf, file)]
    while left[-1]:
        with budget(0):
            collect_garbage(shelf.database, shelf.store)
        left.append(count_versions_left(shelf, file))
    assert [before - after for before, after in pairwise(left)] == [BATCH, BATCH, 1]
    assert shelf.sql("SELECT id FROM ended_content") == []
    shelf.require_tidy()


@pytest.mark.parametrize("point", ["delete.committed", "collection.claimed", "collection.removed"])
def test_a_death_between_batches_is_made_up_for(shelf: Shelf, point: str) -> None:
    file = with_versions(shelf, 2 * BATCH + 1)
    shelf.dies_at(point)
    with suppress(Died):
        shelf.delete(file)
        collect_garbage(shelf.database, shelf.store)
        pytest.fail("no process reached this point")
    shelf.work()
    assert shelf.sql("SELECT id FROM ended_content") == []
    shelf.require_tidy()


def test_bytes_that_cannot_be_removed_now_are_removed_later(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = with_versions(shelf, BATCH)
    shelf.delete(file)

    def fail(blobs: Sequence[Blob]) -> dict[UUID, DomainError]:
        return {blob.version_id: BlobStoreUnavailable() for blob in blobs}

    with monkeypatch.context() as patch:
        patch.setattr(shelf.store, "remove", fail)
        assert collect_garbage(shelf.database, shelf.store) == 0
    shelf.work()
    shelf.require_tidy()


def test_organizations_take_turns_however_much_one_of_them_has_ended(shelf: Shelf) -> None:
    theirs = replace(shelf, caller=caller_with_everything(shelf.database))
    many = [with_versions(shelf, 2 * BATCH) for _ in range(3)]
    other = with_versions(theirs, BATCH)
    for file in many:
        shelf.delete(file)
    theirs.delete(other)
    for _ in range(2):
        with budget(0):
            collect_garbage(shelf.database, shelf.store)
    assert count_versions_left(shelf, other) == 0
    shelf.work()
    shelf.require_tidy()


def test_batch_reads_only_the_versions_that_it_marks(shelf: Shelf) -> None:
    file = shelf.placed()
    shelf.sql(
        "INSERT INTO file_versions (id, file_id, revision, file_name, media_type, byte_size, content_sha256)"
        " SELECT gen_random_uuid(), :id, n, 'a', 'text/plain', 1, sha256('') FROM generate_series(2, 5000) n",
        id=file.version.file_id,
    )
    shelf.sql(
        "INSERT INTO blobs (version_id, state, byte_size) SELECT id, 'live', 1 FROM file_versions"
        " WHERE revision > 1"
    )
    shelf.sql(
        "INSERT INTO ended_content (id, kind, organization_id, doomed_to) VALUES (:id, 'File', :id, 2500)",
        id=file.version.file_id,
    )
    with shelf.database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for table in ("files", "file_versions", "blobs", "ended_content"):
            connection.execute(text(f"VACUUM ANALYZE {table}"))
    values = {"id": file.version.file_id, "limit": 10, "lease": timedelta(minutes=5)}
    plan = explain(shelf.database, content_disposal.MARK_VERSIONS, values)
    assert plan.rows_removed == 0
    assert plan.blocks < 400
