"""Use two stores as one while content is moved. New content goes to the first store; both are searched for a blob.

`shared/files/maintenance/store_migration.py` copies the content. A blob may be in both stores, with the same bytes,
because content never changes. A removal removes the blob from both stores.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from io import FileIO
from itertools import chain
from typing import Self
from uuid import UUID

from shared.errors import DomainError
from shared.files.blobs.base import (
    Blob,
    BlobMissing,
    BlobReader,
    BlobStore,
    Disk,
    Receiver,
    Size,
    Stored,
    UnlockedUpload,
)


class PairedBlobStore:
    """Writes to `first`; reads, places and removes in both."""

    def __init__(self, first: BlobStore, second: BlobStore) -> None:
        self.first = first
        self.second = second
        self.staged_is_readable = first.staged_is_readable
        self.records_before_receiving = first.records_before_receiving
        self.verifies_itself = first.verifies_itself

    def require(self) -> None:
        """Check that both stores are the right ones."""
        self.first.require()
        self.second.require()

    def begin(self, version_id: UUID) -> str | None:
        """Announce an upload to the first store."""
        return self.first.begin(version_id)

    def receive(self, version_id: UUID, *, size_bytes: Size, upload_id: str | None = None) -> Receiver:
        """Receive content into the first store."""
        return self.first.receive(version_id, size_bytes=size_bytes, upload_id=upload_id)

    def place(self, blobs: Sequence[Blob]) -> dict[UUID, DomainError]:
        """Place each blob in the store that received it: another process may have had the other as its first."""
        failures = dict(self.first.place(blobs))
        absent = [blob for blob in blobs if isinstance(failures.get(blob.version_id), BlobMissing)]
        if absent:
            elsewhere = self.second.place(absent)
            for blob in absent:
                del failures[blob.version_id]
            failures |= elsewhere
        return failures

    def open(self, version_id: UUID, *, placed: bool) -> BlobReader:
        """Open the blob in the first, else in the second; a store across the network is asked at the first range."""

        def in_second() -> BlobReader:
            return self.second.open(version_id, placed=placed)

        try:
            reader = self.first.open(version_id, placed=placed)
        except BlobMissing:
            return _ElsewhereReader(in_second())
        if placed and self._may_be_incomplete(version_id):
            reader.close()
            return _ElsewhereReader(in_second())
        # A local file was opened and found; across the network absence shows at the first range.
        return reader if reader.file is not None else _EitherReader(reader, in_second)

    def can_read_staged(self, version_id: UUID) -> bool:
        """Return whether the first store can read the blob, or the second store if it has the blob."""
        if self.first.can_read_staged(version_id):
            return True
        is_there = version_id in self.second.measure([Blob(version_id=version_id, size_bytes=0)])
        return is_there and self.second.can_read_staged(version_id)

    def remove(self, blobs: Sequence[Blob]) -> dict[UUID, DomainError]:
        """Remove blobs from both stores. If one store could not remove a blob, return the failure."""
        # The first store's failures override: it is where new content goes.
        return {**self.second.remove(blobs), **self.first.remove(blobs)}

    def abort(self, version_id: UUID) -> None:
        """Delete the bytes of an upload that the first store received."""
        self.first.abort(version_id)

    def list_unlocked(self, *, batch_size: int = 200) -> Generator[Sequence[UnlockedUpload], None, None]:
        """Yield the unlocked staged bytes of both stores."""
        yield from self.first.list_unlocked(batch_size=batch_size)
        yield from self.second.list_unlocked(batch_size=batch_size)

    def measure(self, blobs: Sequence[Blob]) -> dict[UUID, Stored]:
        """Measure blobs in the first store, and in the second store if the first does not have them."""
        found = dict(self.first.measure(blobs))
        rest = [blob for blob in blobs if blob.version_id not in found]
        return found | dict(self.second.measure(rest)) if rest else found

    def list_placed(self) -> Generator[Sequence[Stored], None, None]:
        """Yield the placed blobs of both stores. A blob that is in both stores appears twice."""
        yield from chain(self.first.list_placed(), self.second.list_placed())

    def disk(self) -> Disk | None:
        """Return the figures of the first store's disk, to which new content is written."""
        return self.first.disk()

    def check(self) -> None:
        """Check that the first store accepts writes and that the second store is the right one."""
        self.first.check()
        self.second.require()

    def _may_be_incomplete(self, version_id: UUID) -> bool:
        """Return whether the blob opened in the first may be an unfinished copy of one in the second.

        Checked after opening: a copy may begin at any moment before, and a blob placed afterwards was complete.
        """
        if not self.first.staged_is_readable:
            return False
        blob = Blob(version_id=version_id, size_bytes=0)
        found = self.first.measure([blob]).get(version_id)
        return (found is None or not found.is_placed) and version_id in self.second.measure([blob])


class _ElsewhereReader:
    """A blob of the second store: a proxy that sends files knows the first's alone."""

    fixed_path = None

    def __init__(self, reader: BlobReader) -> None:
        self._reader = reader

    @property
    def file(self) -> FileIO | None:
        return self._reader.file

    def chunks(self, start: int, stop: int) -> Iterator[bytes]:
        return self._reader.chunks(start, stop)

    def close(self) -> None:
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _EitherReader(_ElsewhereReader):
    """A blob that is read from the second store if the first does not have it."""

    def __init__(self, reader: BlobReader, in_second: Callable[[], BlobReader]) -> None:
        super().__init__(reader)
        self._in_second: Callable[[], BlobReader] | None = in_second

    @property
    def file(self) -> FileIO | None:
        return None

    def chunks(self, start: int, stop: int) -> Iterator[bytes]:
        try:
            return self._reader.chunks(start, stop)
        except BlobMissing:
            if self._in_second is None:
                raise
            in_second, self._in_second = self._in_second, None
        self._reader.close()
        self._reader = in_second()
        return self._reader.chunks(start, stop)
