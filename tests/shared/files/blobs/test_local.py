"""The local store: what the contract of stores does not cover."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shared.files.blobs.base import Blob, BlobDamaged, BlobMissing, BlobStoreUnavailable, StorageFull
from shared.files.blobs.local import LocalBlobStore
from shared.ids import new_id
from tests.contracts.blob_stores import content_of, is_intact, put, stage

MIB = 1 << 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "blobs"


@pytest.fixture
def store(root: Path) -> LocalBlobStore:
    return LocalBlobStore(root)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 4 MiB."""
    mount = tmp_path / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(mount)]
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting a file system needs privileges")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def test_placement_moves_a_blob_to_the_directory_of_its_id(store: LocalBlobStore, root: Path) -> None:
    blob = stage(store)
    name = str(blob.version_id)
    assert (root / "staging" / name).is_file()

    store.place([blob])

    assert (root / "objects" / name[-2:] / name).is_file()
    assert not (root / "staging" / name).exists()


def test_other_accounts_cannot_read_the_store(store: LocalBlobStore, root: Path) -> None:
    put(store)

    modes = {path.stat().st_mode & 0o777 for path in root.rglob("*") if path.is_file()}
    directory_modes = {path.stat().st_mode & 0o777 for path in (root, *root.rglob("*")) if path.is_dir()}

    assert (modes, directory_modes) == ({0o600}, {0o700})


def test_a_reader_follows_a_move_and_outlives_a_removal(store: LocalBlobStore) -> None:
    blob = stage(store, 600_000)
    content = content_of(blob.version_id, blob.size_bytes)

    with store.open(blob.version_id, placed=False) as reader:
        chunks = reader.chunks(0, blob.size_bytes)
        found = next(chunks)
        store.place([blob])
        found += next(chunks)
        store.remove([blob])
        found += b"".join(chunks)

    assert found == content


def test_readers_never_miss_a_blob_that_moves_under_them(store: LocalBlobStore) -> None:
    blobs = [stage(store, 100) for _ in range(300)]
    mover = threading.Thread(target=lambda: [store.place([blob]) for blob in blobs])
    mover.start()

    while mover.is_alive():
        for blob in blobs:
            assert is_intact(store, blob, placed=True)
            assert is_intact(store, blob, placed=False)
    mover.join()


def test_a_reader_offers_the_file_for_sendfile(store: LocalBlobStore) -> None:
    blob = put(store)

    with store.open(blob.version_id, placed=True) as reader:
        next(reader.chunks(500, 1000))
        assert reader.file.read() == content_of(blob.version_id, 1000)

    assert reader.file.closed


def test_fixed_path_is_set_only_after_placement(store: LocalBlobStore, root: Path) -> None:
    blob = stage(store)
    with store.open(blob.version_id, placed=False) as reader:
        assert reader.fixed_path is None

    store.place([blob])

    with store.open(blob.version_id, placed=False) as reader:
        assert reader.fixed_path is not None
        assert (root / reader.fixed_path).read_bytes() == content_of(blob.version_id, blob.size_bytes)


def test_a_link_in_place_of_a_blob_is_not_followed(store: LocalBlobStore, root: Path) -> None:
    version_id = new_id()
    secret = root / "secret"
    secret.write_text("not content")
    (root / "staging" / str(version_id)).symlink_to(secret)

    with pytest.raises(BlobStoreUnavailable):
        store.open(version_id, placed=False)
    with pytest.raises(BlobStoreUnavailable):
        store.receive(version_id, size_bytes=1)


def test_file_truncated_while_read_raises_blob_damaged(store: LocalBlobStore, root: Path) -> None:
    blob = put(store, 600_000)
    with store.open(blob.version_id, placed=True) as reader:
        chunks = reader.chunks(0, blob.size_bytes)
        next(chunks)
        os.truncate(next((root / "objects").rglob(str(blob.version_id))), 1000)

        with pytest.raises(BlobDamaged):
            list(chunks)


def test_content_beyond_the_free_space_is_refused_at_once(small_disk: Path) -> None:
    store = LocalBlobStore(small_disk / "blobs")

    with pytest.raises(StorageFull):
        store.receive(new_id(), size_bytes=8 * MIB)

    assert list(store.list_unlocked()) == []


def test_a_disk_that_fills_up_meanwhile_ends_the_upload_without_a_trace(small_disk: Path) -> None:
    store = LocalBlobStore(small_disk / "blobs")
    first, second = (store.receive(new_id(), size_bytes=3 * MIB) for _ in range(2))
    first.write(bytes(3 * MIB))

    with pytest.raises(StorageFull):
        second.write(bytes(3 * MIB))
    second.discard()

    blob = first.seal()
    first.release()
    assert store.place([blob]) == {}
    put(store, 4096)


def test_a_flush_that_failed_is_never_tried_again(
    store: LocalBlobStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = store.receive(new_id(), size_bytes=3)
    receiver.write(b"abc")

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "lost write")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(BlobStoreUnavailable):
        receiver.seal()
    monkeypatch.undo()

    with pytest.raises(ValueError, match="over"):
        receiver.seal()
    assert list((root / "staging").iterdir()) == []


def test_sweep_never_deletes_a_file_that_is_being_created(store: LocalBlobStore, root: Path) -> None:
    """Sweep without pause while files are created: who has the lock has a file with a name."""
    done = threading.Event()

    def sweep() -> None:
        while not done.is_set():
            for batch in store.list_unlocked(batch_size=3):
                for found in batch:
                    found.discard()

    sweepers = [threading.Thread(target=sweep) for _ in range(2)]
    for sweeper in sweepers:
        sweeper.start()
    try:
        for _ in range(400):
            version_id = new_id()
            receiver = store.receive(version_id, size_bytes=1)
            assert (root / "staging" / str(version_id)).exists()
            receiver.write(b"x")
            blob = receiver.seal()
            assert store.place([blob]) == {}
            receiver.release()
    finally:
        done.set()
        for sweeper in sweepers:
            sweeper.join()


def test_a_sweep_holds_a_batch_locked_until_the_next_is_asked_for(store: LocalBlobStore) -> None:
    staged = {stage(store).version_id for _ in range(5)}

    with closing(store.list_unlocked(batch_size=2)) as batches:
        first = {found.version_id for found in next(batches)}
        others = {found.version_id for batch in store.list_unlocked() for found in batch}
        assert others == staged - first

    assert {found.version_id for batch in store.list_unlocked() for found in batch} == staged


def test_sweep_ignores_files_that_are_not_blobs(store: LocalBlobStore, root: Path) -> None:
    for name in ("notes.txt", str(new_id()).upper(), "{" + str(new_id()) + "}"):
        (root / "staging" / name).write_text("whose?")

    assert list(store.list_unlocked()) == []


def test_missing_shard_fails_placement_without_reporting_blobs_missing(
    store: LocalBlobStore, root: Path
) -> None:
    blob = stage(store)
    (root / "objects" / str(blob.version_id)[-2:]).rmdir()

    failures = store.place([blob])

    assert type(failures[blob.version_id]) is BlobStoreUnavailable
    LocalBlobStore(root)  # a restart makes the directory again
    assert store.place([blob]) == {}


def test_failed_unlink_does_not_delay_other_blobs(store: LocalBlobStore, root: Path) -> None:
    blobs = [put(store, 10) for _ in range(80)]
    stuck = Blob(version_id=new_id(), size_bytes=0)
    (root / "staging" / str(stuck.version_id)).mkdir()

    failures = store.remove([stuck, *blobs])

    assert set(failures) == {stuck.version_id}
    assert [path for path in root.rglob("*") if path.is_file()] == []


def test_check_fails_if_the_directory_was_replaced(store: LocalBlobStore, root: Path) -> None:
    root.rename(root.with_name("unmounted"))
    with pytest.raises(BlobStoreUnavailable):
        store.check()

    LocalBlobStore(root)
    with pytest.raises(BlobStoreUnavailable):
        store.check()


def test_a_store_cannot_be_opened_where_a_file_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(BlobStoreUnavailable):
        LocalBlobStore(tmp_path / "file")


def test_two_processes_may_make_the_same_store(root: Path) -> None:
    code = "import sys; from shared.files.blobs import open_blob_store; open_blob_store(sys.argv[1])"
    command = [sys.executable, "-c", code, root.as_uri()]
    processes = [subprocess.Popen(command, cwd=Path(__file__).parents[4]) for _ in range(4)]

    assert [process.wait() for process in processes] == [0, 0, 0, 0]
    put(LocalBlobStore(root))


def test_missing_stays_missing_wherever_one_looks(store: LocalBlobStore) -> None:
    for placed in (True, False):
        with pytest.raises(BlobMissing):
            store.open(new_id(), placed=placed)
