"""The blob store on a file system that web and worker processes share.

    <root>/staging/<version id>                        being received, or sealed and waiting for placement
    <root>/objects/<last two hex digits>/<version id>  placed (ids begin with the time: only their end is random)

The comments in this module give the reason for the order of the steps. Each step prevents a loss that a test with
thousands of killed processes has shown. Other modules handle the marker (`marker`, `directory`), the staging directory
and its locks (`staging`), and the rows (the files domain).
"""
# Plain strings and calls of `os` throughout: a batch touches thousands of names.
# ruff: noqa: PTH104, PTH108, PTH110, PTH116

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Self
from uuid import UUID

from shared.errors import DomainError
from shared.files.blobs.base import (
    Blob,
    BlobDamaged,
    BlobMissing,
    BlobStoreUnavailable,
    Disk,
    Item,
    Size,
    Stored,
    for_each,
)
from shared.files.blobs.directory import LocalDirectory, shard
from shared.files.blobs.marker import Guard, Identity
from shared.files.blobs.measuring import measured
from shared.files.blobs.staging import (
    LocalReceiver,
    LocalUnlocked,
    list_unlocked,
    sync_directory,
    translated_errors,
)

CHUNK_BYTES = 256 * 1024
BATCH_THREADS = 4
# For fewer items, starting threads costs more time than the system calls.
THREADS_FROM_ITEMS = 64
REPLACED = "The directory of the blob store was replaced while in use."


class LocalBlobStore:
    """Stores each blob as a file."""

    staged_is_readable = True
    verifies_itself = False
    records_before_receiving = False

    def __init__(self, root: Path, *, identity: Identity | None = None, reserve_bytes: int = 0) -> None:
        """Use the directory that the database knows; without an identity any, created if it is absent.

        `reserve_bytes` of its disk stay free. Raises BlobStoreUnavailable only without an identity: a process starts
        even if its store is away.
        """
        self._at = LocalDirectory(root)
        self._reserve_bytes = reserve_bytes
        self._guard = None if identity is None else Guard(self._at, identity)
        if identity is None:
            self._at.prepare()
            self._made = self._at.identify()

    def require(self) -> None:
        """Raise BlobStoreUnavailable if another directory, or a bare mount point, is in the place of the right one."""
        if self._guard is not None:
            self._guard.require()
            return
        if self._at.identify() != self._made:
            raise BlobStoreUnavailable(REPLACED)

    def begin(self, version_id: UUID) -> str | None:  # noqa: ARG002 - the port's parameter
        """Return None: the lock of the staging file announces the upload."""
        return None

    def receive(
        self,
        version_id: UUID,
        *,
        size_bytes: Size,
        upload_id: str | None = None,  # noqa: ARG002 - the port's parameter
    ) -> LocalReceiver:
        """Create and lock the staging file."""
        self.require()
        return LocalReceiver(
            self._at.staging,
            version_id,
            size_bytes=size_bytes,
            reserve_bytes=self._reserve_bytes,
            require=self.require,
        )

    @measured("place")
    def place(self, blobs: Sequence[Blob]) -> dict[UUID, DomainError]:
        """Rename each blob into its directory, then flush each directory once."""
        return self._change(blobs, self._place)

    @measured("open")
    def open(self, version_id: UUID, *, placed: bool) -> LocalReader:
        """Open the blob's file, staged or placed."""
        reader = _find(self._at, version_id, placed=placed)
        if reader is None:
            # Absent at first sight: check again in the pinned right directory, because a mount may have gone meanwhile.
            with self._right_directory() as at:
                reader = _find(at, version_id, placed=placed)
        if reader is None:
            raise BlobMissing
        return reader

    def can_read_staged(self, version_id: UUID) -> bool:  # noqa: ARG002 - the port's parameter
        """Return whether staged blobs can be read; the result is the same for every blob."""
        return self.staged_is_readable

    @measured("remove")
    def remove(self, blobs: Sequence[Blob]) -> dict[UUID, DomainError]:
        """Unlink the staged and then the placed name of each blob. Then flush each directory once."""
        return self._change(blobs, self._unlink)

    def abort(self, version_id: UUID) -> None:
        """Unlink the staging file."""
        with self._right_directory() as at, translated_errors(), suppress(FileNotFoundError):
            os.unlink(at.staging_path(version_id))

    def list_unlocked(self, *, batch_size: int = 200) -> Generator[Sequence[LocalUnlocked], None, None]:
        """Scan the staging directory; the cost depends on its length, not on the store's."""
        with self._right_directory() as at:
            yield from list_unlocked(at.staging, batch_size)

    def disk(self) -> Disk | None:
        """Return the figures of the directory's disk."""
        return self._at.disk()

    def measure(self, blobs: Sequence[Blob]) -> dict[UUID, Stored]:
        """Return the sizes of the staged or placed files."""
        with self._right_directory() as at:
            found = [at.find(blob.version_id) for blob in blobs]
        return {stored.version_id: stored for stored in found if stored is not None}

    def list_placed(self) -> Generator[Sequence[Stored], None, None]:
        """Scan the directories of objects."""
        with self._right_directory() as at:
            yield from at.list_placed()

    @measured("check")
    def check(self) -> None:
        """Check the marker, and write a small file."""
        self.require()
        self._at.probe(self._reserve_bytes)

    @contextmanager
    def _right_directory(self) -> Iterator[LocalDirectory]:
        """Yield the right directory, pinned: what is absent from it is absent, wherever its mount goes meanwhile."""
        self.require()
        # Pinned by a descriptor: a path may lead elsewhere while a volume is unmounted, and back before the check.
        with self._at.pinned() as at:
            if not self._recognizes(at):
                raise BlobStoreUnavailable(REPLACED)
            yield at

    def _recognizes(self, at: LocalDirectory) -> bool:
        if self._guard is not None:
            return self._guard.recognizes(at)
        return at.identify() == self._made

    def _change(
        self, blobs: Sequence[Blob], act: Callable[[LocalDirectory, Blob], None]
    ) -> dict[UUID, DomainError]:
        """Rename or unlink blob by blob, then make it durable directory by directory."""
        ordered = sorted(blobs, key=lambda blob: shard(blob.version_id))
        with self._right_directory() as at:
            failures = {
                blob.version_id: error for blob, error in _for_each(ordered, partial(act, at)).items()
            }
            # Flush even if nothing was left to do: an earlier attempt may have crashed between its rename or unlink and
            # its flush, and the caller is about to change the row for good.
            failures |= _flush(at, [blob.version_id for blob in ordered if blob.version_id not in failures])
        return failures

    def _place(self, at: LocalDirectory, blob: Blob) -> None:
        staging_path, object_path = at.staging_path(blob.version_id), at.object_path(blob.version_id)
        with translated_errors():
            try:
                _require_size(staging_path, blob)
                # Use one rename within the file system, which is atomic: a retry after a crash finds it done or not
                # done.
                os.rename(staging_path, object_path)
            except FileNotFoundError:
                _require_placed(at, blob)

    def _unlink(self, at: LocalDirectory, blob: Blob) -> None:
        with translated_errors():
            # The staging name first: a placement in between either came before, and its object is unlinked, or finds
            # nothing to move. In the other order it could come between the two, and the object would leak.
            for path in (at.staging_path(blob.version_id), at.object_path(blob.version_id)):
                with suppress(FileNotFoundError):
                    os.unlink(path)


class LocalReader:
    """An open file of the store."""

    def __init__(self, file: FileIO, *, fixed_path: str | None) -> None:
        self.file = file
        self.fixed_path = fixed_path

    def chunks(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield bytes without moving the file's offset, so that several ranges can be read concurrently."""
        with translated_errors():
            if os.fstat(self.file.fileno()).st_size < stop:
                raise BlobDamaged
        return self._read(start, stop)

    def _read(self, start: int, stop: int) -> Iterator[bytes]:
        while start < stop:
            with translated_errors():
                chunk = os.pread(self.file.fileno(), min(CHUNK_BYTES, stop - start), start)
            if not chunk:
                raise BlobDamaged
            start += len(chunk)
            yield chunk

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _find(at: LocalDirectory, version_id: UUID, *, placed: bool) -> LocalReader | None:
    # Check both places, so that readers do not notice a move. A blob only moves from staging to its object, so this
    # order misses nothing. Almost every read finds the object, so it comes first, and again after staging.
    staged = at.staging_path(version_id), None
    placed_as = at.object_path(version_id), f"objects/{shard(version_id)}/{version_id}"
    for path, fixed_path in (placed_as, staged, placed_as) if placed else (staged, placed_as):
        with translated_errors(), suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            return LocalReader(FileIO(descriptor), fixed_path=fixed_path)
    return None


def _require_placed(at: LocalDirectory, blob: Blob) -> None:
    try:
        _require_size(at.object_path(blob.version_id), blob)
    except FileNotFoundError:
        if os.path.exists(at.staging_path(blob.version_id)):
            raise BlobStoreUnavailable("A directory of the blob store is missing.") from None
        raise BlobMissing from None


def _flush(at: LocalDirectory, version_ids: Sequence[UUID]) -> dict[UUID, DomainError]:
    """Flush the directories of the blobs with these ids. Return the failures by version id."""
    if not version_ids:
        return {}
    concerned = defaultdict(list)
    for version_id in version_ids:
        concerned[f"{at.objects}/{shard(version_id)}"].append(version_id)
    concerned[at.staging] = list(version_ids)
    failures = _for_each(list(concerned), _flush_directory)
    return {version_id: error for directory, error in failures.items() for version_id in concerned[directory]}


def _for_each(items: Sequence[Item], act: Callable[[Item], None]) -> dict[Item, DomainError]:
    """Apply a function to a batch, to a large one in threads: four unlink about twice as fast as one on ext4."""
    if len(items) < THREADS_FROM_ITEMS:
        return for_each(items, act)
    share = -(-len(items) // BATCH_THREADS)
    shares = [items[start : start + share] for start in range(0, len(items), share)]
    failures: dict[Item, DomainError] = {}
    with ThreadPoolExecutor(BATCH_THREADS) as pool:
        for part in pool.map(lambda few: for_each(few, act), shares):
            failures |= part
    return failures


def _flush_directory(directory: str) -> None:
    with translated_errors():
        sync_directory(directory)


def _require_size(path: str, blob: Blob) -> None:
    if os.stat(path, follow_symlinks=False).st_size != blob.size_bytes:
        raise BlobDamaged
