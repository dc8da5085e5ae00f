"""The audit finds each version with a row and bytes that disagree; a repair loses nothing and may be repeated."""

from pathlib import Path
from uuid import UUID

import pytest

from shared.files.blobs.base import BlobMissing
from shared.files.maintenance import store_audit
from shared.files.maintenance.store_audit import DiscrepancyKind, audit
from shared.files.maintenance.store_repair import discard, repair
from shared.files.resources import Receipt
from shared.ids import new_id
from tests.contracts.blob_stores import LocalBench, S3Bench, put
from tests.shared.files.conftest import Shelf


def found(shelf: Shelf) -> dict[UUID, DiscrepancyKind]:
    return {each.version_id: each.kind for each in audit(shelf.database, shelf.store)}


def repair_all(shelf: Shelf) -> dict[UUID, bool]:
    return {
        each.version_id: repair(shelf.database, shelf.store, each)
        for each in audit(shelf.database, shelf.store)
    }


def lose_bytes(shelf: Shelf, file: Receipt) -> None:
    if isinstance(shelf.bench, LocalBench):
        path_of(shelf.bench, file.version.id).unlink()
    elif isinstance(shelf.bench, S3Bench):
        shelf.bench.bucket.delete(file.version.id)


def path_of(bench: LocalBench, version_id: UUID) -> Path:
    (path,) = bench.root.rglob(str(version_id))
    return path


def lose_row(shelf: Shelf, file: Receipt) -> None:
    shelf.sql("DELETE FROM blobs WHERE version_id = :id", id=file.version.id)


def test_rows_and_bytes_that_agree_are_no_discrepancy(shelf: Shelf) -> None:
    kept, replaced, deleted = shelf.placed(b"kept"), shelf.placed(b"first"), shelf.placed(b"deleted")
    shelf.replace(replaced)
    shelf.delete(deleted)
    assert found(shelf) == {}  # with work that waits
    shelf.work()
    assert found(shelf) == {}
    assert shelf.read(kept) == b"kept"


def test_rows_without_their_bytes_are_named_and_refused_to_readers(shelf: Shelf) -> None:
    missing, short, kept = shelf.placed(b"missing"), shelf.placed(b"shortened"), shelf.placed(b"kept")
    lose_bytes(shelf, missing)
    shelf.bench.tamper(short.version.id)
    expected = {
        missing.version.id: DiscrepancyKind.MISSING,
        short.version.id: DiscrepancyKind.RESIZED,
    }
    assert found(shelf) == expected
    assert is_marked(shelf, missing) is False, "an audit changes nothing"
    for _ in range(2):
        assert repair_all(shelf) == dict.fromkeys(expected, False)
        assert found(shelf) == expected
    assert (is_marked(shelf, missing), is_marked(shelf, short), is_marked(shelf, kept)) == (True, True, False)


@pytest.mark.parametrize("shelf", ["local"], indirect=True)
def test_sample_finds_damaged_bytes_and_restored_bytes_are_readable_again(shelf: Shelf) -> None:
    assert isinstance(shelf.bench, LocalBench)
    file = shelf.placed(b"precious")
    path = path_of(shelf.bench, file.version.id)
    path.write_bytes(b"precioux")
    assert found(shelf) == {file.version.id: DiscrepancyKind.DECAYED}
    assert list(audit(shelf.database, shelf.store, sample=0)) == []
    repair_all(shelf)
    assert is_marked(shelf, file)
    path.write_bytes(b"precious")
    assert found(shelf) == {file.version.id: DiscrepancyKind.SOUND}
    assert repair_all(shelf) == {file.version.id: True}
    assert (is_marked(shelf, file), found(shelf)) == (False, {})


def test_bytes_of_files_that_ended_are_removed(shelf: Shelf) -> None:
    deleted, kept = shelf.placed(b"deleted"), shelf.placed(b"kept")
    shelf.sql(
        "UPDATE files SET state = 'Deleted', ended_at = now() WHERE id = :id", id=deleted.version.file_id
    )
    lose_row(shelf, deleted)
    assert found(shelf) == {deleted.version.id: DiscrepancyKind.ENDED}
    assert repair_all(shelf) == {deleted.version.id: True}
    assert found(shelf) == {}
    shelf.work()
    shelf.require_tidy()
    assert shelf.read(kept) == b"kept"


def test_lost_row_is_restored_if_the_content_matches(shelf: Shelf) -> None:
    right, wrong = shelf.placed(b"right"), shelf.placed(b"wrong")
    for file in (right, wrong):
        lose_row(shelf, file)
    shelf.bench.tamper(wrong.version.id)
    assert found(shelf) == dict.fromkeys([right.version.id, wrong.version.id], DiscrepancyKind.ROWLESS)
    assert repair_all(shelf) == {right.version.id: True, wrong.version.id: False}
    assert found(shelf) == {wrong.version.id: DiscrepancyKind.ROWLESS}
    assert (shelf.state(right), shelf.read(right)) == ("live", b"right")


def test_unknown_bytes_stay_until_an_operator_discards_them(shelf: Shelf) -> None:
    shelf.placed(b"kept")
    unknown = put(shelf.store)
    assert found(shelf) == {unknown.version_id: DiscrepancyKind.UNKNOWN}
    assert repair_all(shelf) == {unknown.version_id: False}
    shelf.work()
    assert found(shelf) == {unknown.version_id: DiscrepancyKind.UNKNOWN}
    assert [discard(shelf.database, each) for each in audit(shelf.database, shelf.store)] == [True]
    shelf.work()
    assert found(shelf) == {}
    shelf.require_tidy()


@pytest.mark.parametrize("shelf", ["local"], indirect=True)
def test_content_that_lies_in_staging_is_placed(shelf: Shelf) -> None:
    assert isinstance(shelf.bench, LocalBench)
    file = shelf.placed(b"early")
    at = path_of(shelf.bench, file.version.id)
    at.rename(shelf.bench.root / "staging" / at.name)
    assert found(shelf) == {file.version.id: DiscrepancyKind.UNPLACED}
    assert repair_all(shelf) == {file.version.id: True}
    assert (found(shelf), shelf.read(file)) == ({}, b"early")


def test_writes_and_deletions_during_an_audit_are_no_discrepancy(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted = [shelf.placed(b"deleted") for _ in range(3)]
    measure, listing = shelf.store.measure, shelf.store.list_placed

    def while_measured(blobs: object) -> object:
        if deleted:
            shelf.delete(deleted.pop())
            shelf.work()
        return measure(blobs)  # type: ignore[arg-type]

    def while_listed() -> object:
        for batch in listing():
            if batch and deleted:
                shelf.delete(deleted.pop())
                shelf.work()
            yield batch

    monkeypatch.setattr(shelf.store, "measure", while_measured)
    monkeypatch.setattr(shelf.store, "list_placed", while_listed)
    shelf.upload(b"staged")
    assert found(shelf) == {}
    assert len(deleted) < 3


def test_batches_meet_every_row_and_every_blob(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_audit, "BATCH_SIZE", 3)
    files = [shelf.placed(b"content") for _ in range(7)]
    for file in files[::3]:
        lose_bytes(shelf, file)
    assert found(shelf) == {file.version.id: DiscrepancyKind.MISSING for file in files[::3]}


def test_the_sample_has_its_size(shelf: Shelf) -> None:
    for _ in range(4):
        shelf.placed(b"content")
    read: list[int] = []
    list(
        audit(
            shelf.database,
            shelf.store,
            sample=2,
            progress=lambda what, n: read.append(n) if what == "read" else None,
        )
    )
    assert read == [1, 1]


def test_a_store_is_measured_without_a_trace(shelf: Shelf) -> None:
    with pytest.raises(BlobMissing), shelf.store.open(new_id(), placed=True) as reader:
        list(reader.chunks(0, 1))
    assert found(shelf) == {}


def is_marked(shelf: Shelf, file: Receipt) -> bool:
    (row,) = shelf.sql("SELECT damaged_at FROM blobs WHERE version_id = :id", id=file.version.id)
    return bool(row.damaged_at is not None)
