"""A run that stalls for longer than its lease, in the middle of a copy, does not harm the run that continues."""

from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

import pytest

from shared import failpoints
from shared.files.blobs.base import UNKNOWN_UPLOAD, Blob, BlobStoreUnavailable
from shared.files.maintenance.store_migration import _copy_one
from shared.files.resources import Receipt
from tests.shared.files.conftest import Move
from tests.support.processes.simulated_deaths import Died, die_once


def stall_once(patch: pytest.MonkeyPatch, point: str, meanwhile: Callable[[], None]) -> list[str]:
    """Run others while a run stalls at this fault point first; return a list that then has its name."""
    reached: list[str] = []

    def reach(name: str) -> None:
        if name == point and not reached:
            reached.append(name)
            meanwhile()

    patch.setattr(failpoints, "hit", reach)
    return reached


def copy_and_die(moving: Move, file: Receipt, point: str) -> None:
    """Make another run claim what one has stalled with, and crash there."""
    moving.shelf.expire_leases()
    with pytest.MonkeyPatch.context() as patch:
        reached = die_once(patch, point)
        with suppress(Died):
            _copy_one(moving.shelf.database, moving.pair.store, file.version.id)
    assert reached


def move_all(moving: Move) -> None:
    moving.shelf.expire_leases()
    assert moving.run().is_complete


def is_in_first(moving: Move, file: Receipt) -> bool:
    blob = Blob(version_id=file.version.id, size_bytes=file.version.byte_size)
    stored = moving.pair.first.store.measure([blob]).get(file.version.id)
    return stored is not None and stored.is_placed


def test_stalled_run_does_not_remove_the_copy_of_another(
    moving: Move, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run has reported completion: from then on the second store may be removed."""
    file = moving.shelf.placed(b"content")
    moving.use(moving.pair)
    copy_and_die(moving, file, "move.read")
    moving.shelf.expire_leases()
    seen: list[bool] = []
    reached = stall_once(monkeypatch, "move.claimed", lambda: move_all(moving))
    begin = moving.pair.first.store.begin

    def look_and_begin(version_id: UUID) -> str | None:
        seen.append(is_in_first(moving, file))
        return begin(version_id)

    monkeypatch.setattr(moving.pair.first.store, "begin", look_and_begin)
    _copy_one(moving.shelf.database, moving.pair.store, file.version.id)
    assert reached
    assert seen == [False, True]  # the other's, and this one's when it goes on
    assert moving.is_moved(file)


@pytest.mark.parametrize("point", ["move.claimed", "move.read"])
def test_stalled_run_neither_records_nor_releases_another_claim(
    moving: Move, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the row leads to the other's unfinished copy, so it must keep its mark until that copy ends."""
    file = moving.shelf.placed(b"content")
    moving.use(moving.pair)
    with monkeypatch.context() as patch:
        reached = stall_once(patch, "move.read", lambda: copy_and_die(moving, file, point))
        with suppress(BlobStoreUnavailable):
            _copy_one(moving.shelf.database, moving.pair.store, file.version.id)
    assert reached
    claimed = moving.shelf.sql("SELECT upload_id FROM blobs WHERE lease_until > now()")
    assert [row.upload_id for row in claimed] == [UNKNOWN_UPLOAD]
    move_all(moving)
    assert moving.is_moved(file)
    assert {name.rsplit("/")[-1] for name in moving.pair.first.leftovers()} == {str(file.version.id)}


def test_it_does_not_remove_its_copy_where_another_has_claimed_the_content(
    moving: Move, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = moving.shelf.placed(b"content")
    moving.use(moving.pair)
    reached = stall_once(monkeypatch, "move.placed", lambda: copy_and_die(moving, file, "move.claimed"))
    _copy_one(moving.shelf.database, moving.pair.store, file.version.id)
    assert reached
    assert is_in_first(moving, file)
