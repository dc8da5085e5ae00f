"""The blob store on a file system that web and workers share.

    <root>/staging/<version id>                        being received, or sealed and waiting for placement
    <root>/objects/<last two hex digits>/<version id>  placed (ids begin with the time: only their end is random)

The rules it protects, each of them the difference between no loss and some in a trial with thousands of kills:

- Placing is one rename within the file system, then a flush of the directory; a repetition finds it done.
- Removing unlinks the staging name *first*, then the object: a placement in between either came before (and its object
  is unlinked) or finds nothing to move. The other way round it could slip past and leak.
- A directory is flushed even when there was nothing left to do in it: an earlier attempt may have died between its
  rename or unlink and its flush, and the row is about to be changed for good.
- Readers find a blob in either place, so that a move under them goes unseen.

Left to others: which directory is the right one (`marker`, `directory`), the staging directory and its locks
(`staging`), rows (the files domain).
"""
# Plain strings and calls of `os` throughout: a batch touches thousands of names.
# ruff: noqa: PTH104, PTH108, PTH110, PTH116

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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
    attempt_each,
)
from shared.files.blobs.directory import LocalDirectory, shard
from shared.files.blobs.marker import Guard, Identity
from shared.files.blobs.measuring import measured
from shared.files.blobs.staging import (
    LocalReceiver,
    LocalUnattended,
    list_unattended,
    sync_directory,
    translated_errors,
)

CHUNK_BYTES = 256 * 1024
BATCH_THREADS = 4
THREADS_FROM_ITEMS = 64


class LocalBlobStore:
    """Keeps blobs as files, one each."""

    staged_is_readable = True
    verifies_itself = False
    records_before_receiving = False

    def __init__(self, root: Path, *, identity: Identity | None = None, reserve_bytes: int = 0) -> None:
        """Use the directory that the database knows; without an identity any, made at once if it is not there.

        `reserve_bytes` of its disk stay free. Raises BlobStoreUnavailable only without an identity: a process starts
        without its store.
        """
        self._at = LocalDirectory(root)
        self._reserve_bytes = reserve_bytes
        self._guard = None if identity is None else Guard(self._at, identity)
        if identity is None:
            self._at.prepare()
            self._made = self._identify()

    def require(self) -> None:
        """See that this is the right directory and no other that is mounted, or bare, in its place."""
        if self._guard is not None:
            self._guard.require()
            return
        with translated_errors():
            if self._identify() != self._made:
                raise BlobStoreUnavailable("The directory of the blob store was replaced while in use.")

    def begin(self, version_id: UUID) -> str | None:  # noqa: ARG002 - the port's parameter
        """Nothing to announce: the staging file's lock says that it is being received."""
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
        """Rename each blob into its directory, then flush every directory once."""
        return self._change(blobs, self._place)

    @measured("open")
    def open(self, version_id: UUID, *, placed: bool) -> LocalReader:
        """Open the file wherever it is by now."""
        # A blob only moves from staging to its object, so looking there in this order misses nothing. Looking at the
        # object first, as is right for almost every read, needs a second look at it.
        staged = self._at.staging_path(version_id), None
        placed_as = self._at.object_path(version_id), f"objects/{shard(version_id)}/{version_id}"
        for path, fixed_path in (placed_as, staged, placed_as) if placed else (staged, placed_as):
            with translated_errors(), suppress(FileNotFoundError):
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
                return LocalReader(FileIO(descriptor), fixed_path=fixed_path)
        self.require()
        raise BlobMissing

    def can_read_staged(self, version_id: UUID) -> bool:  # noqa: ARG002 - the port's parameter
        """Say what holds for each."""
        return self.staged_is_readable

    @measured("remove")
    def remove(self, blobs: Sequence[Blob]) -> dict[UUID, DomainError]:
        """Unlink each blob's two names in the order that matters, then flush every directory once."""
        return self._change(blobs, self._unlink)

    def unattended(self, *, batch_size: int = 200) -> Generator[Sequence[LocalUnattended], None, None]:
        """Go through the staging directory; its length, not the store's, is the cost."""
        self.require()
        yield from list_unattended(self._at.staging, batch_size)

    def disk(self) -> Disk | None:
        """Measure the disk of the directory."""
        return self._at.disk()

    def measure(self, blobs: Sequence[Blob]) -> dict[UUID, Stored]:
        """Look at both names of each."""
        self.require()
        found = (self._at.find(blob.version_id) for blob in blobs)
        measured = {stored.version_id: stored for stored in found if stored is not None}
        self.require()
        return measured

    def list_placed(self) -> Generator[Sequence[Stored], None, None]:
        """Go through the directories of objects."""
        self.require()
        yield from self._at.list_placed()

    @measured("check")
    def check(self) -> None:
        """See that this is the right directory, and write a little into it."""
        self.require()
        self._at.probe(self._reserve_bytes)

    def _change(self, blobs: Sequence[Blob], act: Callable[[Blob], None]) -> dict[UUID, DomainError]:
        """Rename or unlink blob by blob, then make it durable directory by directory."""
        self.require()
        ordered = sorted(blobs, key=lambda blob: shard(blob.version_id))
        failures = {blob.version_id: error for blob, error in _attempt_each(ordered, act).items()}
        failures |= self._flush([blob.version_id for blob in ordered if blob.version_id not in failures])
        # In a directory that took the store's place meanwhile, absence proves nothing.
        self.require()
        return failures

    def _place(self, blob: Blob) -> None:
        staging_path, object_path = (
            self._at.staging_path(blob.version_id),
            self._at.object_path(blob.version_id),
        )
        with translated_errors():
            try:
                _require_size(staging_path, blob)
                os.rename(staging_path, object_path)
            except FileNotFoundError:
                self._require_placed(blob)

    def _require_placed(self, blob: Blob) -> None:
        try:
            _require_size(self._at.object_path(blob.version_id), blob)
        except FileNotFoundError:
            if os.path.exists(self._at.staging_path(blob.version_id)):
                raise BlobStoreUnavailable("A directory of the blob store is gone.") from None
            raise BlobMissing from None

    def _unlink(self, blob: Blob) -> None:
        with translated_errors():
            for path in (self._at.staging_path(blob.version_id), self._at.object_path(blob.version_id)):
                with suppress(FileNotFoundError):
                    os.unlink(path)

    def _flush(self, version_ids: Sequence[UUID]) -> dict[UUID, DomainError]:
        """Flush the directories of these blobs; return whom a failure concerns."""
        if not version_ids:
            return {}
        concerned = defaultdict(list)
        for version_id in version_ids:
            concerned[f"{self._at.objects}/{shard(version_id)}"].append(version_id)
        concerned[self._at.staging] = list(version_ids)
        failures = _attempt_each(list(concerned), _flush_directory)
        return {
            version_id: error for directory, error in failures.items() for version_id in concerned[directory]
        }

    def _identify(self) -> list[tuple[int, int]]:
        found = [os.stat(directory) for directory in (self._at.staging, self._at.objects)]
        return [(status.st_dev, status.st_ino) for status in found]


class LocalReader:
    """An open file of the store."""

    def __init__(self, file: FileIO, *, fixed_path: str | None) -> None:
        self.file = file
        self.fixed_path = fixed_path

    def chunks(self, start: int, stop: int) -> Iterator[bytes]:
        """Read without moving the file's offset, so that ranges may be read side by side."""
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


def _attempt_each(items: Sequence[Item], act: Callable[[Item], None]) -> dict[Item, DomainError]:
    """Do a batch, a large one in threads: four unlink about twice as fast as one on ext4."""
    if len(items) < THREADS_FROM_ITEMS:
        return attempt_each(items, act)
    share = -(-len(items) // BATCH_THREADS)
    shares = [items[start : start + share] for start in range(0, len(items), share)]
    failures: dict[Item, DomainError] = {}
    with ThreadPoolExecutor(BATCH_THREADS) as pool:
        for part in pool.map(lambda few: attempt_each(few, act), shares):
            failures |= part
    return failures


def _flush_directory(directory: str) -> None:
    with translated_errors():
        sync_directory(directory)


def _require_size(path: str, blob: Blob) -> None:
    if os.stat(path, follow_symlinks=False).st_size != blob.size_bytes:
        raise BlobDamaged
