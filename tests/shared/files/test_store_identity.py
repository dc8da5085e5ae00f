"""A store is used only while its marker matches the database (`blobs/marker.py`, `store_identity.py`)."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import text

from shared.db.database import Database
from shared.errors import PermissionDenied, ServiceUnavailable
from shared.files.blobs.base import Blob, BlobMissing, BlobStoreUnavailable
from shared.files.blobs.directory import LocalDirectory
from shared.files.blobs.local import LocalBlobStore
from shared.files.blobs.marker import MARKER
from shared.files.lifecycle.garbage_collection import collect_garbage
from shared.files.lifecycle.placement import place_staged
from shared.files.maintenance.scrubbing import scrub
from shared.files.store_identity import RecordedIdentity, adopt_store, find_store
from shared.files.sweeps import sweep_staging
from shared.identity.access.authorization import OPERATOR, Actor
from shared.ids import new_id
from tests.contracts.blob_stores import is_intact, put, stage
from tests.shared.files.conftest import caller_with_everything


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture(autouse=True)
def _unused(database: Database) -> Iterator[None]:
    run(database, "DELETE FROM blob_stores; DELETE FROM blobs")
    yield
    run(database, "DELETE FROM blob_stores; DELETE FROM blobs")


def run(database: Database, statement: str, **values: object) -> None:
    with database.autocommit() as session:
        session.execute(text(statement), values)


def opened(database: Database, root: Path) -> LocalBlobStore:
    return LocalBlobStore(root, identity=RecordedIdentity(database))


def know(database: Database, *blobs: Blob, state: str = "live") -> None:
    """Insert rows of blobs into the database."""
    for blob in blobs:
        run(
            database,
            "INSERT INTO blobs (version_id, state, byte_size) VALUES (:id, :state, :size)",
            id=blob.version_id,
            state=state,
            size=blob.size_bytes,
        )


def known_id(database: Database) -> UUID | None:
    with database.autocommit() as session:
        found = find_store(session)
    return None if found is None else found.store_id


def written_id(root: Path) -> UUID:
    return UUID((root / MARKER).read_text().strip())


def lose(root: Path, *, leaving_a_directory: bool) -> Callable[[], None]:
    """Remove a store as if it were unmounted; return a function that brings it back."""
    kept = root.with_name("unmounted")
    root.rename(kept)
    if leaving_a_directory:
        root.mkdir()

    def bring_back() -> None:
        if leaving_a_directory:
            assert list(root.iterdir()) == [], "something was made in the directory below the mount"
            root.rmdir()
        assert not root.exists()
        kept.rename(root)

    return bring_back


def test_a_process_starts_without_making_anything(database: Database, root: Path) -> None:
    opened(database, root)
    assert not root.exists()
    assert known_id(database) is None


def test_the_first_use_of_all_marks_the_store_and_makes_it_known(database: Database, root: Path) -> None:
    store = opened(database, root)
    blob = put(store)
    assert written_id(root) == known_id(database)
    assert is_intact(opened(database, root), blob)


def test_many_processes_may_be_the_first(database: Database, root: Path) -> None:
    stores = [opened(database, root) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        blobs = list(pool.map(put, stores))
    assert written_id(root) == known_id(database)
    assert all(is_intact(stores[0], blob) for blob in blobs)


@pytest.mark.parametrize("leaving_a_directory", [True, False])
def test_a_lost_mount_is_neither_written_to_nor_taken_for_empty(
    database: Database, root: Path, *, leaving_a_directory: bool
) -> None:
    store = opened(database, root)
    staged, placed = stage(store), put(store)
    bring_back = lose(root, leaving_a_directory=leaving_a_directory)
    for at in (store, opened(database, root)):  # a process that was running, and one that has started since
        for act in (
            partial(at.receive, new_id(), size_bytes=1),
            partial(at.place, [staged]),
            partial(at.remove, [placed]),
            lambda: list(at.list_unlocked()),  # noqa: B023 (called at once)
            partial(at.open, placed.version_id, placed=True),
            at.check,
            at.require,
        ):
            with pytest.raises(BlobStoreUnavailable):
                act()
    bring_back()
    store.check()
    assert is_intact(store, placed)
    assert store.place([staged]) == {}
    assert store.remove([placed]) == {}
    with pytest.raises(BlobMissing):
        store.open(placed.version_id, placed=True)


@pytest.fixture
def lost_in_between(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Mount the store only while its marker is checked, and lose it at any other moment."""
    kept = root.with_name("unmounted")
    look, hold = LocalDirectory.fingerprint, LocalDirectory.pinned

    @contextmanager
    def there() -> Iterator[None]:
        kept.rename(root)
        yield
        root.rename(kept)

    def look_at_it(at: LocalDirectory) -> object | None:
        with there():
            return look(at)

    @contextmanager
    def hold_it(at: LocalDirectory) -> Iterator[LocalDirectory]:
        held = hold(at)
        with there():
            directory = held.__enter__()
        yield directory
        held.__exit__(None, None, None)

    def begin() -> None:
        root.rename(kept)
        monkeypatch.setattr(LocalDirectory, "fingerprint", look_at_it)
        monkeypatch.setattr(LocalDirectory, "pinned", hold_it)

    yield begin
    monkeypatch.undo()


def test_nothing_is_found_missing_while_the_mount_goes_and_comes_back(
    database: Database, root: Path, lost_in_between: Callable[[], None]
) -> None:
    store = opened(database, root)
    staged, placed = stage(store), put(store)
    both = {staged.version_id, placed.version_id}
    lost_in_between()
    assert is_intact(store, placed, placed=True)
    assert is_intact(store, staged, placed=False)
    assert set(store.measure([staged, placed])) == both
    assert [found.version_id for batch in store.list_placed() for found in batch] == [placed.version_id]
    assert [found.version_id for batch in store.list_unlocked() for found in batch] == [staged.version_id]
    assert store.place([staged, placed]) == {}
    assert store.remove([staged, placed]) == {}
    assert store.measure([staged, placed]) == {}
    with pytest.raises(BlobMissing):
        store.open(placed.version_id, placed=True)


def test_sweeps_claim_nothing_while_the_mount_is_lost(database: Database, root: Path) -> None:
    store = opened(database, root)
    staged, doomed, live = stage(store), put(store), put(store)
    know(database, staged, state="staged")
    know(database, doomed, state="doomed")
    know(database, live)
    bring_back = lose(root, leaving_a_directory=True)
    sweeps: list[Callable[[], int]] = [
        lambda: place_staged(database, store),
        lambda: collect_garbage(database, store),
        lambda: sweep_staging(database, store),
        lambda: scrub(database, store, timedelta(0), budget_bytes=1 << 30),
    ]
    for sweep in sweeps:
        with pytest.raises(BlobStoreUnavailable):
            sweep()
    bring_back()
    assert (place_staged(database, store), collect_garbage(database, store)) == (1, 1)
    with database.autocommit() as session:
        damaged = session.execute(text("SELECT count(*) FROM blobs WHERE damaged_at IS NOT NULL")).scalar()
    assert damaged == 0


def test_upload_during_an_unmount_is_not_acknowledged(database: Database, root: Path) -> None:
    store = opened(database, root)
    put(store)
    receiver = store.receive(new_id(), size_bytes=3)
    receiver.write(b"abc")
    bring_back = lose(root, leaving_a_directory=False)
    with pytest.raises(BlobStoreUnavailable):
        receiver.seal()
    bring_back()
    assert {blob.version_id for batch in store.list_unlocked() for blob in batch} == {receiver._version_id}


def test_an_upload_into_another_directory_is_not_acknowledged(database: Database, root: Path) -> None:
    """The volume is unmounted just before the file is created, and mounted again before it is sealed."""
    store = opened(database, root)
    put(store)
    receiver = store.receive(new_id(), size_bytes=3)
    receiver.write(b"abc")
    staged = root / "staging" / str(receiver._version_id)
    staged.unlink()
    staged.write_bytes(b"of another")
    with pytest.raises(BlobStoreUnavailable):
        receiver.seal()


def test_another_installations_store_is_not_used(database: Database, root: Path, tmp_path: Path) -> None:
    store = opened(database, root)
    blob = put(store)
    other = tmp_path / "other"
    LocalDirectory(other).write_id(new_id())
    root.rename(tmp_path / "mine")
    other.rename(root)
    for act in (
        lambda: store.receive(new_id(), size_bytes=1),
        lambda: store.open(blob.version_id, placed=True),
    ):
        with pytest.raises(BlobStoreUnavailable):
            act()
    assert [path.name for path in root.iterdir()] == [MARKER]


def test_content_from_before_there_were_markers_is_adopted_once(database: Database, root: Path) -> None:
    before = LocalBlobStore(root)
    blobs = [put(before) for _ in range(30)]
    know(database, *blobs)
    store = opened(database, root)
    store.check()
    assert written_id(root) == known_id(database)
    assert all(is_intact(store, blob) for blob in blobs)


def test_an_upgrade_without_its_volume_marks_nothing(database: Database, root: Path) -> None:
    volume = LocalBlobStore(root.with_name("volume"))
    know(database, *(put(volume) for _ in range(15)))
    root.mkdir()
    # Uploads of an hour without the volume, taken by a release that knew no markers.
    know(database, *(put(LocalBlobStore(root)) for _ in range(4)))
    with pytest.raises(BlobStoreUnavailable):
        opened(database, root).check()
    assert known_id(database) is None
    assert not (root / MARKER).exists()


def test_content_unknown_to_the_database_refuses_the_store(database: Database, root: Path) -> None:
    put(LocalBlobStore(root))
    with pytest.raises(BlobStoreUnavailable):
        opened(database, root).check()
    assert not (root / MARKER).exists()


def test_a_death_between_the_marker_and_the_commit_is_made_up_for(database: Database, root: Path) -> None:
    LocalDirectory(root).write_id(new_id())
    store = opened(database, root)
    put(store)
    assert written_id(root) == known_id(database)


def test_operator_adopts_a_store(database: Database, root: Path) -> None:
    running = opened(database, root)
    put(running)
    moved = root.with_name("moved")
    foreign = put(LocalBlobStore(moved))
    root.rename(root.with_name("old"))
    moved.rename(root)
    with pytest.raises(BlobStoreUnavailable):
        running.check()
    stranger = Actor(caller=caller_with_everything(database))
    with pytest.raises(PermissionDenied), database.transaction() as session:
        adopt_store(session, actor=stranger, marked=LocalDirectory(root))
    with database.transaction() as session:
        adopted = adopt_store(session, actor=OPERATOR, marked=LocalDirectory(root))
    assert adopted.store_id == written_id(root) == known_id(database)
    running.check()
    assert is_intact(running, foreign)


def test_without_the_database_no_store_is_taken_for_the_right_one(root: Path) -> None:
    nowhere = Database("postgresql+psycopg2://nobody@127.0.0.1:1/none", pool_size=1)
    store = LocalBlobStore(root, identity=RecordedIdentity(nowhere))
    with pytest.raises(ServiceUnavailable):
        store.receive(new_id(), size_bytes=1)
    assert not root.exists()
