"""The contract of every blob store, on real stores: a directory, and two S3 servers that differ in strictness."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from shared.files.blobs import open_blob_store
from shared.files.blobs.base import (
    AtMost,
    Blob,
    BlobDamaged,
    BlobMissing,
    BlobStore,
    BlobStoreUnavailable,
    Receiver,
)
from shared.ids import new_id
from tests.contracts.blob_stores import (
    Bench,
    LocalBench,
    S3Bench,
    content_of,
    is_intact,
    put,
    read,
    stage,
    sweep_without_rows,
)

MIB = 1 << 20


@pytest.fixture(params=["local", "moto", "ministack"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    if request.param == "local":
        return LocalBench(tmp_path / "blobs")
    access = request.getfixturevalue(request.param)
    return S3Bench(f"s3://blobs-{uuid4()}/content", access, shares_client=True)


@pytest.fixture
def store(bench: Bench) -> BlobStore:
    return bench.store


@pytest.mark.parametrize("size_bytes", [0, 1, 65536, 8 * MIB, 8 * MIB + 1])
def test_a_placed_blob_reads_back_byte_for_byte(store: BlobStore, size_bytes: int) -> None:
    blob = put(store, size_bytes)

    assert is_intact(store, blob)


def test_a_write_of_any_size_keeps_its_bytes_and_order(store: BlobStore) -> None:
    version_id = new_id()
    content = content_of(version_id, 9 * MIB)
    receiver = store.receive(version_id, size_bytes=len(content), upload_id=store.begin(version_id))
    whole, start = bytearray(content), 0
    for size_bytes in (1, 0, 7, 3 * MIB, 8 * MIB):
        receiver.write(memoryview(whole)[start : start + size_bytes])
        start += size_bytes
    whole[:] = bytes(len(whole))  # The receiver keeps no reference to the caller's buffer.
    blob = receiver.seal()
    receiver.release()
    store.place([blob])

    assert read(store, blob) == content


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (999, 1000), (300, 700), (0, 1000), (500, 500)])
def test_a_range_is_exactly_the_bytes_asked_for(store: BlobStore, start: int, stop: int) -> None:
    blob = put(store)

    with store.open(blob.version_id, placed=True) as reader:
        found = b"".join(reader.chunks(start, stop))

    assert found == content_of(blob.version_id, blob.size_bytes)[start:stop]


def test_one_reader_serves_range_after_range(store: BlobStore) -> None:
    blob = put(store, 600_000)
    content = content_of(blob.version_id, blob.size_bytes)

    with store.open(blob.version_id, placed=True) as reader:
        next(reader.chunks(0, 600_000))  # This reader is left unfinished.
        found = b"".join(reader.chunks(10, 500_000)), b"".join(reader.chunks(0, 5))

    assert found == (content[10:500_000], content[:5])


@pytest.mark.parametrize(("start", "stop"), [(0, 1001), (5000, 6000)])
def test_truncated_blob_is_damaged_before_anything_is_read(store: BlobStore, start: int, stop: int) -> None:
    blob = put(store)

    with store.open(blob.version_id, placed=True) as reader, pytest.raises(BlobDamaged):
        reader.chunks(start, stop)


def test_unknown_blob_is_missing(store: BlobStore) -> None:
    with pytest.raises(BlobMissing):
        read(store, Blob(version_id=new_id(), size_bytes=1))


def test_a_staged_blob_is_readable_where_the_store_says_so(store: BlobStore) -> None:
    blob = stage(store)

    if store.staged_is_readable:
        assert is_intact(store, blob, placed=False)
    else:
        with pytest.raises(BlobMissing):
            read(store, blob, placed=False)


def test_outdated_placement_state_does_not_matter(store: BlobStore) -> None:
    placed, staged = put(store), stage(store)

    assert is_intact(store, placed, placed=False)
    if store.staged_is_readable:
        assert is_intact(store, staged, placed=True)


def test_placing_again_is_a_success(store: BlobStore) -> None:
    blob = put(store)

    assert store.place([blob]) == {}
    assert is_intact(store, blob)


def test_eight_workers_placing_one_blob_all_succeed(bench: Bench) -> None:
    blob = stage(bench.store)

    with ThreadPoolExecutor(8) as pool:
        failures = list(pool.map(lambda _: bench.store.place([blob]), range(8)))

    # A server may refuse a completion while another is running. That worker tries again.
    assert {} in failures
    assert {type(error) for failed in failures for error in failed.values()} <= {BlobStoreUnavailable}
    assert bench.store.place([blob]) == {}
    assert is_intact(bench.store, blob)


def test_a_removed_blob_is_gone_and_removing_again_is_a_success(bench: Bench) -> None:
    placed, staged = put(bench.store), stage(bench.store)

    assert bench.store.remove([placed, staged]) == {}
    assert bench.store.remove([placed, staged]) == {}
    assert bench.leftovers() == set()
    with pytest.raises(BlobMissing):
        read(bench.store, placed)


def test_a_live_blob_is_removed_without_its_upload_id(bench: Bench) -> None:
    blob = put(bench.store)

    assert bench.store.remove([replace(blob, upload_id=None)]) == {}
    assert bench.leftovers() == set()


def test_placement_after_the_removal_restores_nothing(bench: Bench) -> None:
    blob = stage(bench.store)
    bench.store.remove([blob])

    assert _failures(bench.store.place([blob])) == {blob.version_id: BlobMissing}
    assert bench.leftovers() == set()


def test_an_aborted_upload_is_gone_and_what_is_placed_stays(bench: Bench) -> None:
    placed, staged = put(bench.store), stage(bench.store)

    for blob in (placed, staged, staged):
        bench.store.abort(blob.version_id)

    assert _failures(bench.store.place([placed, staged])) == {staged.version_id: BlobMissing}
    assert is_intact(bench.store, placed)
    assert len(bench.leftovers()) == 1


def test_discard_after_an_abort_keeps_newly_received_content(bench: Bench) -> None:
    version_id = new_id()

    def receive() -> Receiver:
        upload_id = bench.store.begin(version_id)
        return bench.store.receive(version_id, size_bytes=10, upload_id=upload_id)

    aborted = receive()
    bench.store.abort(version_id)
    receiver = receive()
    receiver.write(b"0123456789")
    aborted.discard()
    blob = receiver.seal()
    receiver.release()

    assert bench.store.place([blob]) == {}
    assert read(bench.store, blob) == b"0123456789"


def test_an_upload_that_outlives_its_removal_leaves_nothing(bench: Bench) -> None:
    version_id = new_id()
    upload_id = bench.store.begin(version_id)
    receiver = bench.store.receive(version_id, size_bytes=10, upload_id=upload_id)
    recorded = Blob(version_id=version_id, size_bytes=10, upload_id=upload_id)
    bench.store.remove([recorded])

    try:
        receiver.write(b"too late!!")
        bench.store.place([receiver.seal()])
    except BlobStoreUnavailable:
        receiver.discard()
    receiver.release()

    assert bench.leftovers() == set()


def test_one_bad_blob_does_not_block_a_batch(store: BlobStore) -> None:
    absent = Blob(version_id=new_id(), size_bytes=1)
    misrecorded = replace(stage(store), size_bytes=999)
    good = [stage(store) for _ in range(3)]

    failures = store.place([absent, *good, misrecorded])

    assert _failures(failures) == {absent.version_id: BlobMissing, misrecorded.version_id: BlobDamaged}
    assert all(is_intact(store, blob) for blob in good)


def test_a_blob_shorter_than_recorded_is_damaged(bench: Bench) -> None:
    blob = put(bench.store)
    bench.tamper(blob.version_id)

    assert _failures(bench.store.place([blob])) == {blob.version_id: BlobDamaged}


def test_a_large_batch_is_placed_and_removed_whole(bench: Bench) -> None:
    blobs = [stage(bench.store, 10) for _ in range(100)]

    assert bench.store.place(blobs) == {}
    assert all(is_intact(bench.store, blob) for blob in blobs)
    assert bench.store.remove([replace(blob, upload_id=None) for blob in blobs]) == {}
    assert bench.leftovers() == set()


def test_empty_batch_does_nothing(store: BlobStore) -> None:
    assert (store.place([]), store.remove([])) == ({}, {})


@pytest.mark.parametrize("written", [0, 400, 1000])
def test_a_discarded_upload_leaves_nothing(bench: Bench, written: int) -> None:
    version_id = new_id()
    receiver = bench.store.receive(version_id, size_bytes=1000, upload_id=bench.store.begin(version_id))
    receiver.write(b"x" * written)
    if written == 1000:
        receiver.seal()

    receiver.discard()
    receiver.discard()

    assert bench.leftovers() == set()


def test_discard_after_the_release_removes_nothing(store: BlobStore) -> None:
    version_id = new_id()
    receiver = store.receive(version_id, size_bytes=3, upload_id=store.begin(version_id))
    receiver.write(b"abc")
    blob = receiver.seal()
    receiver.release()

    receiver.discard()

    assert store.place([blob]) == {}
    assert read(store, blob) == b"abc"


def test_the_size_announced_is_the_size_received(bench: Bench) -> None:
    version_id = new_id()
    receiver = bench.store.receive(version_id, size_bytes=10, upload_id=bench.store.begin(version_id))
    receiver.write(b"12345")

    with pytest.raises(ValueError, match="fewer"):
        receiver.seal()
    with pytest.raises(ValueError, match="more"):
        receiver.write(b"678901")

    receiver.discard()
    assert bench.leftovers() == set()


@pytest.mark.parametrize("size_bytes", [0, 5, 10])
def test_content_of_unknown_size_is_stored_within_its_limit(bench: Bench, size_bytes: int) -> None:
    version_id, content = new_id(), b"x" * size_bytes
    upload_id = bench.store.begin(version_id)
    receiver = bench.store.receive(version_id, size_bytes=AtMost(10), upload_id=upload_id)
    receiver.write(content)
    with pytest.raises(ValueError, match="more"):
        receiver.write(b"x" * 11)
    blob = receiver.seal()
    receiver.release()

    assert blob.size_bytes == size_bytes
    assert bench.store.place([blob]) == {}
    assert read(bench.store, blob) == content


def test_a_sweep_finds_staged_bytes_but_never_those_being_received(store: BlobStore) -> None:
    version_id = new_id()
    receiver = store.receive(version_id, size_bytes=3, upload_id=store.begin(version_id))
    receiver.write(b"abc")

    assert list(store.list_unlocked()) == []
    blob = receiver.seal()
    assert list(store.list_unlocked()) == []

    receiver.release()
    found = [item.version_id for batch in store.list_unlocked() for item in batch]
    assert found == ([version_id] if store.staged_is_readable else [])
    assert store.place([blob]) == {}
    assert list(store.list_unlocked()) == []


def test_a_killed_upload_leaves_only_what_the_sweep_removes(bench: Bench) -> None:
    placed, staged = put(bench.store), stage(bench.store)
    with _lone_upload(bench, 20 * MIB, "hang") as process:
        said = _first_line(process)
        list_unlocked = {str(item.version_id) for batch in bench.store.list_unlocked() for item in batch}
        assert said["version_id"] not in list_unlocked
        process.kill()
        process.wait()
    upload_id = said["upload_id"]
    recorded = Blob(version_id=UUID(said["version_id"]), size_bytes=20 * MIB, upload_id=upload_id)
    bench.store.place([staged])

    sweep_without_rows(bench.store, recorded if bench.store.records_before_receiving else None)

    assert len(bench.leftovers()) == 2
    assert is_intact(bench.store, placed)
    assert is_intact(bench.store, staged)


def test_memory_does_not_grow_with_the_upload(bench: Bench) -> None:
    peaks_kib = []
    for size_bytes in (18 * MIB, 90 * MIB):
        with _lone_upload(bench, size_bytes, "complete") as process:
            peaks_kib.append(_first_line(process)["peak_kib"])

    assert peaks_kib[1] - peaks_kib[0] < 12 * 1024


def test_a_usable_store_passes_its_check(store: BlobStore) -> None:
    store.check()


def test_addresses_that_name_no_store_are_refused() -> None:
    for url in ("/var/blobs", "file://host/path", "file:///", "s3:///prefix", "https://bucket"):
        with pytest.raises(ValueError, match="blob store"):
            open_blob_store(url)


def _failures(failures: Any) -> dict[UUID, type]:
    return {version_id: type(error) for version_id, error in failures.items()}


def _lone_upload(bench: Bench, size_bytes: int, ending: str) -> subprocess.Popen[str]:
    endpoint_url = bench.s3.endpoint_url or "-"
    command = [sys.executable, "-m", "tests.contracts.lone_upload", bench.url, endpoint_url]
    root = Path(__file__).parents[2]
    return subprocess.Popen([*command, str(size_bytes), ending], stdout=subprocess.PIPE, text=True, cwd=root)


def _first_line(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    said: dict[str, Any] = json.loads(process.stdout.readline())
    return said


def test_store_lists_sizes_without_reading_content(bench: Bench, store: BlobStore) -> None:
    placed, staged = [put(store, size) for size in (0, 1, 70_000)], stage(store, 500)
    absent = Blob(version_id=new_id(), size_bytes=1)
    held = store.measure([*placed, staged, absent])
    assert {at: (found.size_bytes, found.is_placed) for at, found in held.items()} == {
        **{blob.version_id: (blob.size_bytes, True) for blob in placed},
        staged.version_id: (500, False),
    }
    listed = {found.version_id: found.size_bytes for batch in store.list_placed() for found in batch}
    assert listed == {blob.version_id: blob.size_bytes for blob in placed}


def test_a_removed_blob_is_neither_measured_nor_listed(store: BlobStore) -> None:
    blob = put(store)
    store.remove([blob])
    assert store.measure([blob]) == {}
    assert [found for batch in store.list_placed() for found in batch] == []
