"""Placement, collection, expiry and sweeps: what each does, repeated without harm, and after a crash at any step.

A crash is an exception at a fault point; real kills of real processes are in the journeys.
"""

import fcntl
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from shared.errors import DomainError, ServiceUnavailable
from shared.files import staging, sweeps
from shared.files.backlog import measure_backlog
from shared.files.blobs.base import Blob, BlobMissing, BlobStoreUnavailable
from shared.files.lifecycle import expiry, garbage_collection
from shared.files.lifecycle.expiry import expire_due
from shared.files.lifecycle.garbage_collection import collect_garbage
from shared.files.lifecycle.placement import place_staged, wait_while_staged
from shared.files.resources import ReceivedContent
from shared.files.staging import Sink
from shared.files.sweeps import purge_grants, purge_operations, sweep_staging
from tests.shared.files.conftest import Shelf, receiving
from tests.support.processes.simulated_deaths import Died

LATER = datetime(2090, 1, 1, tzinfo=UTC)


def test_staged_content_is_placed_once(shelf: Shelf) -> None:
    file = shelf.upload(b"content")
    assert shelf.state(file) == "staged"
    assert place_staged(shelf.database, shelf.store) == 1
    assert shelf.state(file) == "live"
    assert shelf.read(file) == b"content"
    assert place_staged(shelf.database, shelf.store) == 0
    shelf.require_tidy()


def test_leased_content_is_not_claimed_until_the_lease_ends(shelf: Shelf) -> None:
    file = shelf.upload()
    shelf.sql("UPDATE blobs SET lease_until = now() + interval '1 minute'")
    assert place_staged(shelf.database, shelf.store) == 0
    shelf.expire_leases()
    assert place_staged(shelf.database, shelf.store) == 1
    assert shelf.state(file) == "live"


def test_content_that_cannot_be_placed_waits_and_holds_up_no_other(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = shelf.upload(b"bad"), shelf.upload(b"good")
    place = shelf.store.place

    def refuse_one(blobs: Sequence[Blob]) -> dict[UUID, DomainError]:
        failures = dict(place([blob for blob in blobs if blob.version_id != bad.version.id]))
        return failures | {bad.version.id: BlobStoreUnavailable()}

    with monkeypatch.context() as patch:
        patch.setattr(shelf.store, "place", refuse_one)
        assert place_staged(shelf.database, shelf.store) == 1
    assert (shelf.state(bad), shelf.state(good)) == ("staged", "live")
    shelf.work()
    assert shelf.read(bad) == b"bad"


def test_waiting_ends_with_the_placement_or_with_the_content(shelf: Shelf) -> None:
    placed, deleted, staged = shelf.placed(), shelf.upload(), shelf.upload()
    shelf.delete(deleted)
    assert wait_while_staged(shelf.database, placed.version.id, 0) is False
    assert wait_while_staged(shelf.database, deleted.version.id, 0) is False
    assert wait_while_staged(shelf.database, uuid4(), 0) is False
    assert wait_while_staged(shelf.database, staged.version.id, 0.03) is True


@pytest.mark.parametrize("is_placed", [False, True])
def test_the_bytes_of_a_deleted_file_are_removed(shelf: Shelf, *, is_placed: bool) -> None:
    file = shelf.placed() if is_placed else shelf.upload()
    kept = shelf.placed(b"kept")
    shelf.delete(file)
    assert collect_garbage(shelf.database, shelf.store) == 1
    assert collect_garbage(shelf.database, shelf.store) == 0
    assert shelf.state(file) is None
    assert shelf.read(kept) == b"kept"
    shelf.require_tidy()


def test_sweep_between_creation_and_lock_does_not_fail_the_upload(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, sweeps_left = fcntl.flock, [sweep_staging]

    def sweep_first(descriptor: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX and sweeps_left:
            sweeps_left.pop()(shelf.database, shelf.store)
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    file = shelf.upload(b"content")
    shelf.work()
    assert shelf.read(file) == b"content"
    shelf.require_tidy()


def test_content_deleted_under_its_placement_does_not_come_back(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has claimed the content; it is deleted and collected before the worker places it."""
    file = shelf.upload()
    place = shelf.store.place

    def lose(blobs: Sequence[Blob]) -> Mapping[UUID, DomainError]:
        shelf.delete(file)
        collect_garbage(shelf.database, shelf.store)
        return place(blobs)

    monkeypatch.setattr(shelf.store, "place", lose)
    assert place_staged(shelf.database, shelf.store) == 0
    assert shelf.state(file) is None
    shelf.require_tidy()


def test_content_deleted_after_its_placement_is_not_marked_live(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has placed the content, which is deleted before the worker records it."""
    file = shelf.upload()
    place = shelf.store.place

    def place_and_lose(blobs: Sequence[Blob]) -> Mapping[UUID, DomainError]:
        failures = place(blobs)
        shelf.delete(file)
        return failures

    monkeypatch.setattr(shelf.store, "place", place_and_lose)
    place_staged(shelf.database, shelf.store)
    assert shelf.state(file) == "doomed"
    assert collect_garbage(shelf.database, shelf.store) == 1
    shelf.require_tidy()


def test_file_renewed_or_deleted_after_the_search_does_not_expire(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fair search takes no locks: the sweep checks again under the lock."""
    renewed, deleted = shelf.placed(), shelf.placed()
    shelf.expire(deleted)
    shelf.sql(
        "UPDATE files SET state = 'Deleted', ended_at = now() WHERE id = :id", id=deleted.version.file_id
    )
    found = [renewed.version.file_id, deleted.version.file_id]
    monkeypatch.setattr(expiry, "select_round_robin", lambda *_, **__: found)
    assert expire_due(shelf.database, shelf.store) == 0
    rows = shelf.sql("SELECT id, state FROM files WHERE id = ANY (:ids)", ids=found)
    assert {row.id: row.state for row in rows} == dict(zip(found, ["Available", "Deleted"], strict=True))
    assert shelf.state(renewed) == "live"


def test_bytes_that_cannot_be_removed_keep_their_row_and_are_tried_again(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = shelf.placed()
    shelf.delete(file)
    with monkeypatch.context() as patch:
        patch.setattr(
            shelf.store, "remove", lambda blobs: {blob.version_id: BlobStoreUnavailable() for blob in blobs}
        )
        assert collect_garbage(shelf.database, shelf.store) == 0
    assert shelf.state(file) == "doomed"
    assert collect_garbage(shelf.database, shelf.store) == 0
    shelf.work()
    shelf.require_tidy()


def test_expiry_ends_due_files_with_all_versions_and_no_others(shelf: Shelf) -> None:
    due, later, never = shelf.placed(), shelf.upload(until=LATER), shelf.placed()
    second = shelf.replace(due)
    place_staged(shelf.database, shelf.store)
    shelf.expire(due)
    assert expire_due(shelf.database, shelf.store) == 1
    assert expire_due(shelf.database, shelf.store) == 0
    assert (shelf.state(due), shelf.state(second)) == (None, None)
    assert (shelf.state(later), shelf.state(never)) == ("live", "live")
    rows = shelf.sql(
        "SELECT state, ended_at = retention_expires_at AS at_deadline FROM files WHERE id = :id",
        id=due.version.file_id,
    )
    assert [tuple(row) for row in rows] == [("Expired", True)]
    shelf.require_tidy()


def test_a_deleted_file_does_not_expire_as_well(shelf: Shelf) -> None:
    file = shelf.placed()
    shelf.delete(file)
    shelf.expire(file)
    assert expire_due(shelf.database, shelf.store) == 0
    rows = shelf.sql("SELECT state FROM files")
    assert [row.state for row in rows] == ["Deleted"]


def test_batches_repeat_until_none_is_left(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "BATCH_SIZE", 2)
    monkeypatch.setattr(garbage_collection, "BATCH_SIZE", 2)
    files = [shelf.upload() for _ in range(5)]
    shelf.expire(*files)
    assert expire_due(shelf.database, shelf.store) == 5
    files = [shelf.upload() for _ in range(5)]
    for file in files:
        shelf.delete(file)
    assert collect_garbage(shelf.database, shelf.store) == 5
    shelf.require_tidy()


@pytest.mark.parametrize(
    ("point", "is_stored"),
    [
        ("upload.begun", False),
        ("upload.opened", False),
        ("upload.received", False),
        ("upload.sealed", False),
        ("upload.before_commit", False),
        ("upload.committed", True),
    ],
)
def test_an_upload_that_dies_is_whole_or_leaves_nothing(shelf: Shelf, point: str, *, is_stored: bool) -> None:
    operation_id = uuid4()
    shelf.dies_at(point)
    with pytest.raises(Died):
        shelf.upload(b"content", operation_id=operation_id)
    shelf.work()
    shelf.require_tidy()
    again = shelf.upload(b"content", operation_id=operation_id)
    assert again.replayed is is_stored
    shelf.work()
    assert shelf.read(again) == b"content"
    shelf.require_tidy()


@pytest.mark.parametrize("point", ["upload.received", "upload.before_commit", "upload.committed"])
def test_a_replace_that_dies_leaves_the_old_content_or_the_new(shelf: Shelf, point: str) -> None:
    file = shelf.placed(b"old")
    shelf.dies_at(point)
    with pytest.raises(Died):
        shelf.replace(file, b"new")
    shelf.work()
    shelf.require_tidy()
    rows = shelf.sql("SELECT revision FROM files")
    assert rows[0].revision == (2 if point == "upload.committed" else 1)


@pytest.mark.parametrize("point", ["placement.claimed", "placement.placed", "placement.recorded"])
def test_a_worker_that_dies_while_placing_is_made_up_for(shelf: Shelf, point: str) -> None:
    file = shelf.upload(b"content")
    shelf.dies_at(point)
    with pytest.raises(Died):
        place_staged(shelf.database, shelf.store)
    shelf.work()
    assert shelf.state(file) == "live"
    assert shelf.read(file) == b"content"
    shelf.require_tidy()


@pytest.mark.parametrize("point", ["placement.claimed", "placement.placed", "placement.recorded"])
def test_content_deleted_after_its_placement_died_leaves_nothing(shelf: Shelf, point: str) -> None:
    file = shelf.upload()
    shelf.dies_at(point)
    with pytest.raises(Died):
        place_staged(shelf.database, shelf.store)
    shelf.delete(file)
    collect_garbage(shelf.database, shelf.store)
    shelf.require_tidy()


@pytest.mark.parametrize("point", ["delete.before_commit", "delete.committed"])
def test_a_delete_that_dies_has_happened_or_not(shelf: Shelf, point: str) -> None:
    file = shelf.placed()
    shelf.dies_at(point)
    with pytest.raises(Died):
        shelf.delete(file)
    shelf.work()
    shelf.require_tidy()
    assert shelf.state(file) == (None if point == "delete.committed" else "live")


@pytest.mark.parametrize("point", ["collection.claimed", "collection.removed", "collection.recorded"])
def test_a_collector_that_dies_is_made_up_for(shelf: Shelf, point: str) -> None:
    files = [shelf.placed(), shelf.upload()]
    for file in files:
        shelf.delete(file)
    shelf.dies_at(point)
    with pytest.raises(Died):
        collect_garbage(shelf.database, shelf.store)
    shelf.work()
    assert [shelf.state(file) for file in files] == [None, None]
    shelf.require_tidy()


@pytest.mark.parametrize(
    "point", ["expiry.before_commit", "expiry.expired", "collection.removed", "collection.recorded"]
)
def test_an_expiry_that_dies_is_made_up_for(shelf: Shelf, point: str) -> None:
    files = [shelf.placed(), shelf.upload()]
    shelf.expire(*files)
    shelf.dies_at(point)
    with pytest.raises(Died):
        expire_due(shelf.database, shelf.store)
    shelf.work()
    assert [row.state for row in shelf.sql("SELECT state FROM files")] == ["Expired", "Expired"]
    shelf.require_tidy()


def test_an_upload_that_is_still_being_received_is_not_swept(shelf: Shelf) -> None:
    version_id = uuid4()
    receiver = shelf.store.receive(version_id, size_bytes=3, upload_id=shelf.store.begin(version_id))
    receiver.write(b"abc")
    assert sweep_staging(shelf.database, shelf.store) == 0
    receiver.seal()
    receiver.discard()


def test_staged_content_with_a_row_is_not_swept(shelf: Shelf) -> None:
    file = shelf.upload(b"content")
    assert sweep_staging(shelf.database, shelf.store) == 0
    shelf.work()
    assert shelf.read(file) == b"content"


@pytest.mark.parametrize("shelf", ["local"], indirect=True)
@pytest.mark.parametrize("point", ["none", "sweep.doomed", "sweep.discarded"])
def test_a_sweep_of_dead_uploads_may_die_itself(shelf: Shelf, point: str) -> None:
    for _ in range(3):
        version_id = uuid4()
        receiver = shelf.store.receive(version_id, size_bytes=3)
        receiver.write(b"abc")
        receiver.seal()
        receiver.release()
    assert len(shelf.bench.leftovers()) == 3
    if point == "none":
        assert sweep_staging(shelf.database, shelf.store) == 3
    else:
        shelf.dies_at(point)
        with pytest.raises(Died):
            sweep_staging(shelf.database, shelf.store)
    shelf.work()
    shelf.require_tidy()


@pytest.mark.parametrize("shelf", ["s3"], indirect=True)
def test_upload_deleted_by_a_sweep_is_not_committed(shelf: Shelf) -> None:
    """The sender exceeded its lease; the sweep ran between the last byte and the commit."""
    receive = receiving(b"content")

    def take_too_long(sink: Sink) -> ReceivedContent:
        content = receive(sink)
        shelf.expire_leases()
        collect_garbage(shelf.database, shelf.store)
        return content

    with pytest.raises((ServiceUnavailable, BlobStoreUnavailable)):
        shelf.upload(b"content", receive=take_too_long)
    assert shelf.sql("SELECT id FROM files") == []
    assert shelf.sql("SELECT operation_id FROM file_operations") == []
    shelf.work()
    shelf.require_tidy()


@pytest.mark.parametrize("shelf", ["s3"], indirect=True)
@pytest.mark.parametrize("point", ["upload.begun", "upload.received"])
def test_recorded_upload_is_deleted_only_after_its_lease(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The crash must leave everything behind, as a real one does."""
    monkeypatch.setattr(staging.StagedContent, "end", lambda _: None)
    shelf.dies_at(point)
    with pytest.raises(Died):
        shelf.upload()
    assert shelf.bench.leftovers() != set()
    assert collect_garbage(shelf.database, shelf.store) == 0
    assert [row.state for row in shelf.sql("SELECT state FROM blobs")] == ["receiving"]
    shelf.expire_leases()
    assert collect_garbage(shelf.database, shelf.store) == 1
    shelf.require_tidy()


def test_missing_bytes_keep_their_row_and_are_retried(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    file = shelf.upload(b"content")
    with monkeypatch.context() as patch:
        patch.setattr(shelf.store, "place", lambda blobs: {blob.version_id: BlobMissing() for blob in blobs})
        assert place_staged(shelf.database, shelf.store) == 0
    assert shelf.state(file) == "staged"
    shelf.work()
    assert shelf.read(file) == b"content"


def test_operations_are_forgotten_when_they_are_old_and_not_before(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeps, "BATCH_SIZE", 2)
    old = [uuid4() for _ in range(5)]
    for operation_id in old:
        shelf.upload(operation_id=operation_id)
    shelf.sql("UPDATE file_operations SET created_at = now() - interval '30 days 1 second'")
    kept = uuid4()
    first = shelf.upload(operation_id=kept)
    shelf.sql(
        "UPDATE file_operations SET created_at = now() - interval '29 days' WHERE operation_id = :id", id=kept
    )
    assert purge_operations(shelf.database, timedelta(days=30)) == 5
    assert purge_operations(shelf.database, timedelta(days=30)) == 0
    again = shelf.upload(operation_id=kept)
    assert (again.replayed, again.version.id) == (True, first.version.id)
    assert shelf.upload(operation_id=old[0]).replayed is False


def test_grants_are_forgotten_a_day_after_they_expired(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "BATCH_SIZE", 2)
    file = shelf.upload()
    for number, hours in enumerate((-25, -26, -27, -23, 1)):
        shelf.sql(
            "INSERT INTO read_grants (id, token_hash, file_id, version_id, created_by, access_expires_at)"
            " VALUES (:id, CAST(:hash AS bytea), :file, :version, :id, now() + :life)",
            id=uuid4(),
            hash=bytes([number]) * 32,
            file=file.version.file_id,
            version=file.version.id,
            life=timedelta(hours=hours),
        )
    assert purge_grants(shelf.database) == 3
    assert purge_grants(shelf.database) == 0
    assert len(shelf.sql("SELECT id FROM read_grants")) == 2


def test_backlog_counts_waiting_rows_by_state(shelf: Shelf) -> None:
    shelf.upload()
    shelf.delete(shelf.upload())
    shelf.expire(shelf.placed(), shelf.upload())
    with shelf.database.autocommit() as session:
        backlog = {at.state: at.rows for at in measure_backlog(session)}
        ages = [at.oldest_seconds for at in measure_backlog(session)]
    assert backlog == {"staged": 1, "doomed": 1, "receiving": 0, "due": 2}
    assert all(age >= 0 for age in ages)
