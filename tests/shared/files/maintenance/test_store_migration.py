"""Content moves from one store to another while it is read, written and deleted; a run that crashes is repeated."""

import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from shared import failpoints
from shared.db.database import Database
from shared.files.blobs.base import BlobReader, BlobStoreUnavailable
from shared.files.blobs.local import LocalBlobStore
from shared.files.blobs.paired import PairedBlobStore
from shared.files.content import refuse_unreadable
from shared.files.errors import FilePending
from shared.files.lifecycle.placement import place_staged
from shared.files.maintenance.store_audit import audit
from shared.files.maintenance.store_migration import MigrationResult, move
from shared.files.resources import Content, Receipt
from shared.files.store_identity import (
    FirstIdentity,
    RecordedIdentity,
    SecondIdentity,
    list_stores,
    retire_store,
)
from shared.identity.access.authorization import OPERATOR
from tests.contracts.blob_stores import LocalBench, put
from tests.shared.files.conftest import Move, Shelf
from tests.support.processes.simulated_deaths import Died, die_once

POINTS = ("move.claimed", "move.read", "move.placed")


def test_everything_is_found_before_while_and_after_it_moves(moving: Move) -> None:
    shelf = moving.shelf
    placed = [shelf.placed(content) for content in (b"one", b"x" * 300_000, b"three")]
    staged = shelf.upload(b"staged")
    moving.use(moving.pair)
    assert [shelf.read(file) for file in placed] == [b"one", b"x" * 300_000, b"three"]
    place_staged(shelf.database, shelf.store)
    assert (shelf.state(staged), shelf.read(staged)) == ("live", b"staged")
    new = shelf.placed(b"new")
    assert moving.run() == MigrationResult(versions=4, size_bytes=300_014, is_complete=True)
    assert moving.run() == MigrationResult(is_complete=True)
    assert list(audit(shelf.database, shelf.store)) == []
    assert moving.is_moved(*placed, staged, new)
    assert list(audit(shelf.database, moving.pair.first.store)) == []
    assert shelf.sql("SELECT 1 FROM blobs WHERE upload_id IS NOT NULL OR lease_until IS NOT NULL") == []


def test_ranges_are_read_from_either_store(moving: Move) -> None:
    old = moving.shelf.placed(b"0123456789")
    moving.use(moving.pair)
    new = moving.shelf.placed(b"abcdefghij")
    for file, expected in ((old, (b"234", b"01")), (new, (b"cde", b"ab"))):
        with moving.shelf.store.open(file.version.id, placed=True) as reader:
            assert (b"".join(reader.chunks(2, 5)), b"".join(reader.chunks(0, 2))) == expected


@pytest.mark.parametrize("point", POINTS)
def test_a_run_that_dies_is_run_again_and_leaves_nothing_behind(
    moving: Move, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = moving.shelf
    files = [shelf.placed(b"content %d" % number) for number in range(3)]
    moving.use(moving.pair)
    with monkeypatch.context() as patch:
        reached = die_once(patch, point)
        with pytest.raises(Died):
            moving.run()
        assert reached
    assert [shelf.read(file) for file in files] == [b"content %d" % number for number in range(3)]
    shelf.expire_leases()
    assert moving.run().is_complete
    assert moving.is_moved(*files)
    assert {Path(name).name for name in moving.pair.first.leftovers()} == {
        str(file.version.id) for file in files
    }


@pytest.mark.parametrize("point", POINTS)
def test_content_that_is_deleted_while_it_is_copied_stays_nowhere(
    moving: Move, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = moving.shelf
    deleted = shelf.placed(b"deleted")
    moving.use(moving.pair)

    def reach(name: str) -> None:
        if name == point:
            monkeypatch.undo()
            shelf.delete(deleted)
            shelf.work()

    monkeypatch.setattr(failpoints, "hit", reach)
    assert moving.run().is_complete
    moving.use(moving.pair.first)
    shelf.require_tidy()
    moving.use(moving.pair.second)
    shelf.require_tidy()


def test_a_removal_takes_content_out_of_both_stores(moving: Move) -> None:
    shelf = moving.shelf
    file, kept = shelf.placed(b"moved"), shelf.placed(b"kept")
    moving.use(moving.pair)
    moving.run()
    shelf.delete(file)
    shelf.work()
    for bench in (moving.pair.first, moving.pair.second):
        moving.use(bench)
        shelf.require_tidy()
    assert moving.is_moved(kept)


def test_content_that_cannot_be_read_is_named_and_holds_up_nothing(moving: Move) -> None:
    shelf = moving.shelf
    short, kept = shelf.placed(b"shortened"), shelf.placed(b"kept")
    moving.pair.second.tamper(short.version.id)
    moving.use(moving.pair)
    moved = moving.run()
    assert (moved.unreadable, moved.versions, moved.is_complete) == ({short.version.id}, 1, False)
    assert moving.is_moved(kept)


@pytest.mark.parametrize("ending", ["unfinished", "given up", "placed"])
def test_unfinished_copy_is_not_read_while_content_is_opened(
    moving: Move, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """The reader looks into the first store when the copy has begun, and reads when it may have ended."""
    shelf, first = moving.shelf, moving.pair.first.store
    file = shelf.placed(b"content")
    moving.use(moving.pair)
    if not first.staged_is_readable:
        pytest.skip("what is received is not found before it is placed")
    open_first = first.open

    def open_late(version_id: UUID, *, placed: bool) -> BlobReader:
        receiver = first.receive(version_id, size_bytes=7)
        reader = open_first(version_id, placed=placed)
        if ending == "placed":
            receiver.write(b"content")
            first.place([receiver.seal()])
        elif ending == "given up":
            receiver.discard()
        receiver.release()
        return reader

    monkeypatch.setattr(first, "open", open_late)
    assert shelf.read(file) == b"content"


class Load:
    """Readers that read all versions again and again, and a writer that deletes every third of its files."""

    def __init__(self, shelf: Shelf, old: list[tuple[Receipt, bytes]]) -> None:
        self.shelf = shelf
        self.kept = old
        self.failures: list[BaseException] = []
        self.rounds = 0
        self._ended = threading.Event()
        acts = (self._read, self._read, self._write)
        self._threads = [threading.Thread(target=self._guarded, args=(act,)) for act in acts]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._threads[-1].join(60)
        self._ended.set()
        for thread in self._threads:
            thread.join(60)

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 (told to the test)
            self.failures.append(error)
            traceback.print_exception(error)

    def _read(self) -> None:
        while not self._ended.is_set():
            for file, content in tuple(self.kept):
                assert self.shelf.read(file) == content
            self.rounds += 1

    def _write(self) -> None:
        for number in range(30):
            content = b"new content %d" % number
            file = self.shelf.placed(content)
            if number % 3 == 0:
                self.shelf.delete(file)
                self.shelf.work()
            else:
                self.kept.append((file, content))


def test_reads_writes_and_deletions_continue_while_content_moves(
    moving: Move, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is killed and restarted under load, and nothing is lost."""
    shelf = moving.shelf
    contents = [b"old content %d" % number for number in range(20)]
    old = [(shelf.placed(content), content) for content in contents]
    moving.use(moving.pair)
    with Load(shelf, old) as load:
        with monkeypatch.context() as patch:
            die_once(patch, "move.placed")
            with suppress(Died):
                moving.run()
        shelf.sql("UPDATE blobs SET lease_until = NULL WHERE state = 'live'")
        assert moving.run().is_complete
    assert (load.failures, load.rounds > 0) == ([], True)
    assert moving.run().is_complete
    shelf.work()
    assert list(audit(shelf.database, moving.pair.first.store)) == []
    assert moving.is_moved(*(file for file, _ in load.kept))


def test_content_staged_where_it_can_be_read_is_not_pending(moving: Move) -> None:
    """A web process that was not restarted stages it in the store that was the first until now."""
    shelf = moving.shelf
    local = isinstance(moving.pair.second, LocalBench)
    old = shelf.upload(b"staged before")
    moving.use(moving.pair)
    content = Content(
        organization_id=uuid4(), owner_id=None, version=old.version, is_placed=False, is_damaged=False
    )
    if local:
        refuse_unreadable(content, shelf.store)
        assert shelf.read(old) == b"staged before"
    new = shelf.upload(b"staged after")
    pending = Content(
        organization_id=uuid4(), owner_id=None, version=new.version, is_placed=False, is_damaged=False
    )
    if local:
        with pytest.raises(FilePending):
            refuse_unreadable(pending, shelf.store)
    else:
        refuse_unreadable(pending, shelf.store)


@pytest.fixture
def _unused(database: Database) -> Iterator[None]:
    statement = "DELETE FROM blob_stores; DELETE FROM blobs"
    with database.autocommit() as session:
        session.connection.exec_driver_sql(statement)
    yield
    with database.autocommit() as session:
        session.connection.exec_driver_sql(statement)


def pair_of(database: Database, first: Path, second: Path) -> PairedBlobStore:
    return PairedBlobStore(
        LocalBlobStore(first, identity=FirstIdentity(database)),
        LocalBlobStore(second, identity=SecondIdentity(database)),
    )


@pytest.mark.usefixtures("_unused")
def test_a_process_must_know_every_store_that_is_used(database: Database, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    alone = LocalBlobStore(old, identity=RecordedIdentity(database))
    put(alone)
    pair_of(database, old, new).require()
    LocalBlobStore(old, identity=RecordedIdentity(database)).require()  # nothing goes to the new one yet
    switched = pair_of(database, new, old)
    put(switched)
    for at in (old, new):
        with pytest.raises(BlobStoreUnavailable, match="SECOND_BLOB_STORE"):
            LocalBlobStore(at, identity=RecordedIdentity(database)).require()
    move(database, switched)
    with database.transaction() as session:
        retire_store(session, actor=OPERATOR, moved_to=switched.first._at)  # type: ignore[attr-defined]
    LocalBlobStore(new, identity=RecordedIdentity(database)).require()
    pair_of(database, new, old).require()
    with pytest.raises(BlobStoreUnavailable):
        LocalBlobStore(old, identity=RecordedIdentity(database)).require()


@pytest.mark.usefixtures("_unused")
def test_a_second_store_that_holds_something_is_not_taken(database: Database, tmp_path: Path) -> None:
    put(LocalBlobStore(tmp_path / "old", identity=RecordedIdentity(database)))
    put(LocalBlobStore(tmp_path / "foreign"))
    with pytest.raises(BlobStoreUnavailable, match="not empty"):
        pair_of(database, tmp_path / "old", tmp_path / "foreign").require()
    with pytest.raises(BlobStoreUnavailable):
        pair_of(database, tmp_path / "empty", tmp_path / "old").require()  # a lost mount, and not the second
    with database.autocommit() as session:
        assert len(list_stores(session)) == 1
