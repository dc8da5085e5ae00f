"""The scrub: damaged bytes are found, refused while they are wrong, and readable again once they are restored."""

from datetime import timedelta
from pathlib import Path

import pytest

from shared import failpoints
from shared.files.blobs.base import BlobStoreUnavailable
from shared.files.content import find_chunk_checksums
from shared.files.maintenance.scrubbing import BATCH_SIZE, scrub
from shared.files.resources import Receipt
from shared.observability.telemetry import SCRUBBED
from tests.contracts.blob_stores import LocalBench
from tests.shared.files.conftest import Shelf
from tests.support.processes.simulated_deaths import Died

MONTH = timedelta(days=30)


# S3 checks itself; of a bench in a directory one can rot the bytes.
pytestmark = pytest.mark.parametrize("shelf", ["local"], indirect=True)


def test_content_is_read_again_once_in_an_interval(shelf: Shelf) -> None:
    shelf.placed()
    assert run(shelf) == 0
    let_time_pass(shelf)
    assert run(shelf) == 1
    assert run(shelf) == 0


def test_damaged_content_is_marked_and_repaired_content_is_readable_again(shelf: Shelf) -> None:
    rotten, sound = shelf.placed(b"precious"), shelf.placed(b"other")
    path = path_of(shelf, rotten)
    path.write_bytes(b"precioux")
    let_time_pass(shelf)
    assert run(shelf) == 2
    assert (is_damaged(shelf, rotten), is_damaged(shelf, sound)) == (True, False)
    path.write_bytes(b"precious")
    assert run(shelf) == 0
    shelf.sql("UPDATE blobs SET verified_at = now() - interval '61 minutes'")
    assert run(shelf) == 1
    assert is_damaged(shelf, rotten) is False


def test_content_from_before_there_were_checksums_gets_them(shelf: Shelf) -> None:
    old, rotten = shelf.placed(bytes(600_000)), shelf.placed(b"precious")
    made = checksums_of(shelf, old)
    shelf.sql("UPDATE blobs SET chunk_checksums = NULL")
    path_of(shelf, rotten).write_bytes(b"precioux")
    let_time_pass(shelf)
    run(shelf)
    assert len(made or b"") == 3 * 4
    assert checksums_of(shelf, old) == made
    assert checksums_of(shelf, rotten) is None


def checksums_of(shelf: Shelf, file: Receipt) -> bytes | None:
    with shelf.database.autocommit() as session:
        return find_chunk_checksums(session, file.version.id)


def test_missing_and_shortened_content_is_damaged(shelf: Shelf) -> None:
    missing, short = shelf.placed(b"missing"), shelf.placed(b"shortened")
    path_of(shelf, missing).unlink()
    path_of(shelf, short).write_bytes(b"short")
    let_time_pass(shelf)
    run(shelf)
    assert (is_damaged(shelf, missing), is_damaged(shelf, short)) == (True, True)


def test_run_ends_with_its_budget_and_the_next_continues(shelf: Shelf) -> None:
    for _ in range(BATCH_SIZE + 1):
        shelf.placed(b"seven..")
    let_time_pass(shelf)
    assert scrub(shelf.database, shelf.store, MONTH, budget_bytes=1) == BATCH_SIZE
    assert scrub(shelf.database, shelf.store, MONTH, budget_bytes=1) == 1


def test_pieces_of_long_uploads_do_not_delay_the_scrub_of_content(shelf: Shelf) -> None:
    """They have no digest to be compared with, and are the longest unread."""
    shelf.placed()
    let_time_pass(shelf)
    shelf.sql(
        "INSERT INTO blobs (version_id, state, byte_size, verified_at) SELECT gen_random_uuid(), 'live', 1,"
        " now() - interval '90 days' FROM generate_series(1, :count)",
        count=BATCH_SIZE,
    )
    assert run(shelf) == 1
    assert run(shelf) == 0


def test_content_that_was_claimed_is_not_read_by_another_run(shelf: Shelf) -> None:
    shelf.placed()
    let_time_pass(shelf)
    shelf.dies_at("scrub.claimed")
    with pytest.raises(Died):
        run(shelf)
    assert run(shelf) == 0


def test_unresponsive_store_marks_no_content_damaged(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    file = shelf.placed()
    let_time_pass(shelf)

    def refuse(*_: object, **__: object) -> None:
        raise BlobStoreUnavailable

    with monkeypatch.context() as patch:
        patch.setattr(shelf.store, "open", refuse)
        assert run(shelf) == 0
    assert is_damaged(shelf, file) is False
    assert run(shelf) == 1


def test_content_that_was_deleted_meanwhile_is_neither_sound_nor_damaged(shelf: Shelf) -> None:
    file = shelf.placed()
    let_time_pass(shelf)
    shelf.delete(file)
    shelf.work()
    assert run(shelf) == 0
    shelf.require_tidy()


def test_content_that_is_removed_while_it_is_read_raises_no_alarm(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = shelf.placed()
    let_time_pass(shelf)
    before = count_damaged()

    def remove(point: str) -> None:
        if point == "scrub.claimed":
            monkeypatch.undo()
            shelf.delete(file)
            shelf.work()

    monkeypatch.setattr(failpoints, "hit", remove)
    assert run(shelf) == 1
    assert count_damaged() == before
    shelf.require_tidy()


def count_damaged() -> float:
    return float(SCRUBBED.labels("damaged")._value.get())


def run(shelf: Shelf) -> int:
    return scrub(shelf.database, shelf.store, MONTH, budget_bytes=1 << 30)


def let_time_pass(shelf: Shelf) -> None:
    shelf.sql("UPDATE blobs SET verified_at = now() - interval '31 days'")


def is_damaged(shelf: Shelf, file: Receipt) -> bool:
    (row,) = shelf.sql("SELECT damaged_at FROM blobs WHERE version_id = :id", id=file.version.id)
    return bool(row.damaged_at is not None)


def path_of(shelf: Shelf, file: Receipt) -> Path:
    assert isinstance(shelf.bench, LocalBench)
    (path,) = shelf.bench.root.rglob(str(file.version.id))
    return path
