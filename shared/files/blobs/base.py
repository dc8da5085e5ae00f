"""The port through which the files domain keeps bytes: what a blob store promises, and how it may fail.

A blob is the content of one version and lies under a key made from that version's id, which is never shared and never
used again; so a removal is exact and needs no reference counts. The truth about a blob is its row in the database;
the store only obeys, and every verb may be repeated after a crash at any point:

    (record) → begin → (record its id) → receive → write … → seal → (commit the row) → release → place → open … → remove
                                            └── discard, on any failure before the commit

The rule it protects: what was committed is never lost, what was not committed is always found again. It holds as long
as the caller keeps this order, and above all:

- `discard` only while no commit was attempted. After a commit whose outcome is unknown, `release`: if the row is
  there, the bytes are promised; if it is not, a sweep finds them.
- A blob's row is deleted only after `remove` returned without naming that blob.
- `BlobMissing` is an alarm to raise and a job to retry, never a reason to delete a row.

Left to others: rows, leases and retries (the files domain); the digest of the content (the code that feeds the
receiver).
"""

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import FileIO
from typing import Protocol, Self, TypeVar
from uuid import UUID

from shared.errors import DomainError, Kind, ServiceUnavailable

Item = TypeVar("Item", bound=Hashable)
STORAGE_RETRY_SECONDS = 5
UNKNOWN_UPLOAD = ""
"""The upload id of a blob whose upload may have been begun by a process that died before it could say so."""


class BlobStoreUnavailable(ServiceUnavailable):
    """The store of file content does not answer at the moment; try again."""

    code = "blob_store_unavailable"
    is_wrong = False
    """Whether a store answers that is not the one of this database."""

    @classmethod
    def wrong(cls, detail: str) -> Self:
        """Make the error of a store that is not the one of this database."""
        error = cls(detail)
        error.is_wrong = True
        return error


class StorageFull(DomainError):
    """There is no room left in the store of file content; what is stored can be read."""

    code = "storage_full"
    kind = Kind.STORAGE_FULL

    def __init__(self, detail: str | None = None) -> None:
        """Ask for a retry after some seconds: somebody has to free space."""
        super().__init__(detail, retry_after_seconds=STORAGE_RETRY_SECONDS)


class StorageReadOnly(DomainError):
    """The store of file content cannot be written to at the moment; what is stored can be read."""

    code = "storage_read_only"
    kind = Kind.STORAGE_FULL

    def __init__(self, detail: str | None = None) -> None:
        """Ask for a retry after some seconds: somebody has to mount it anew."""
        super().__init__(detail, retry_after_seconds=STORAGE_RETRY_SECONDS)


class BlobMissing(DomainError):
    """The store does not hold this content at the moment."""

    code = "blob_missing"
    kind = Kind.UNAVAILABLE


class BlobDamaged(DomainError):
    """The store holds other bytes than those recorded for this content."""

    code = "blob_damaged"
    kind = Kind.UNAVAILABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """What a store must know of a blob to place or remove it; the blob's row keeps it.

    `upload_id` and `checksum` are the store's own, None where it needs none. Without `upload_id` a removal must look
    for uploads to abort, which is needed until the blob is live.
    """

    version_id: UUID
    size_bytes: int
    upload_id: str | None = None
    checksum: str | None = None
    chunk_checksums: bytes | None = field(default=None, repr=False)
    """Of content just received, those of its chunks (`chunks`); None where the store checks itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The disk that a store fills, and what is left of it for the service."""

    size_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What a store holds of a blob; `is_placed` says that it is at its final place."""

    version_id: UUID
    size_bytes: int
    is_placed: bool


@dataclass(frozen=True, slots=True)
class AtMost:
    """The size of content whose sender does not say how long it will be."""

    size_bytes: int


Size = int | AtMost
"""How much content to receive: exactly so many bytes, or at most."""


def largest(size: Size) -> int:
    """Give the most bytes that content of this size can have."""
    return size.size_bytes if isinstance(size, AtMost) else size


class Receiver(Protocol):
    """One upload on its way into the store, in constant memory; used by one thread."""

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Append a chunk; the bytes may be reused afterwards.

        The caller counts: more than the announced size or bound is a ValueError. Raises BlobStoreUnavailable,
        StorageFull, StorageReadOnly.
        """

    def seal(self) -> Blob:
        """Make every byte survive a crash and say what to record. Raises BlobStoreUnavailable, StorageFull.

        A seal that failed is final (the kernel reports a lost write once): discard and answer with the error. Fewer
        bytes than an announced size are a ValueError.
        """

    def release(self) -> None:
        """Let go of the bytes after the commit (or an attempt at one): sweeps may look at them now."""

    def discard(self) -> None:
        """Take back whatever was stored; after `release` or another discard do nothing. Never raises."""


class BlobReader(Protocol):
    """An open blob. A removal meanwhile does not cut off a local reader."""

    @property
    def file(self) -> FileIO | None:
        """The file itself, at offset 0, for sendfile; None where the bytes come over the network."""

    @property
    def fixed_path(self) -> str | None:
        """The path below the store's root if a front proxy may send it: it exists and will not move. Else None."""

    def chunks(self, start: int, stop: int) -> Iterator[bytes]:
        """Stream bytes start..stop (exclusive). The request is made, and refused, before this returns.

        Raises BlobMissing, BlobDamaged (fewer bytes than asked for), BlobStoreUnavailable; the latter two also from
        the iterator, when the store breaks off and does not come back.
        """

    def close(self) -> None:
        """Let go of the file or connection; idempotent."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


class UnlockedUpload(Protocol):
    """Staged bytes that no living process is receiving; locked against everyone else while one holds this."""

    @property
    def version_id(self) -> UUID:
        """The version the bytes were meant for."""

    def discard(self) -> None:
        """Delete the bytes; only when no row promises them, nor can any more (see `list_unlocked`). Never raises."""


class BlobStore(Protocol):
    """Where content lies. All verbs are safe to repeat and to run from many threads and processes at once."""

    @property
    def staged_is_readable(self) -> bool:
        """Whether `open` finds a blob that is received now, once it is sealed and before it is placed."""

    @property
    def records_before_receiving(self) -> bool:
        """Whether a row must be committed before `begin`, and the upload id before the first byte.

        Until then the row has UNKNOWN_UPLOAD, by which a removal finds the upload.
        """

    @property
    def verifies_itself(self) -> bool:
        """Whether the store itself finds content that has rotted, so that nobody need read it again."""

    def require(self) -> None:
        """Raise BlobStoreUnavailable unless this is the store that the database knows.

        Called before rows are claimed for the store; its verbs that change anything ask by themselves.
        """

    def begin(self, version_id: UUID) -> str | None:
        """Announce an upload; return the upload id to record, or None. Raises BlobStoreUnavailable."""

    def receive(self, version_id: UUID, *, size_bytes: Size, upload_id: str | None = None) -> Receiver:
        """Start to receive so many bytes. Raises BlobStoreUnavailable, StorageFull, StorageReadOnly."""

    def place(self, blobs: Sequence[Blob]) -> Mapping[UUID, DomainError]:
        """Bring sealed blobs to their final place, durably; return the failures by version id.

        A blob already placed is a success. A failure (BlobMissing, BlobDamaged, BlobStoreUnavailable, StorageFull)
        holds up no other blob.
        """

    def open(self, version_id: UUID, *, placed: bool) -> BlobReader:
        """Open a blob; `placed` says where to look first and may be out of date.

        Raises BlobMissing, and BlobStoreUnavailable also while the wrong store is there; a store across the network
        asks for nothing yet and raises them from `chunks`.
        """

    def can_read_staged(self, version_id: UUID) -> bool:
        """Tell whether `open` finds this blob, which is sealed and not placed. Raises BlobStoreUnavailable."""

    def remove(self, blobs: Sequence[Blob]) -> Mapping[UUID, DomainError]:
        """Delete blobs in whatever state, durably; return the failures by version id.

        A blob of which nothing is left is a success. After a success no placement, however late, brings it back.
        """

    def abort(self, version_id: UUID) -> None:
        """Give up what is received of a blob; what is placed stays. Raises BlobStoreUnavailable."""

    def list_unlocked(self, *, batch_size: int = 200) -> Generator[Sequence[UnlockedUpload], None, None]:
        """Iterate over batches of staged bytes nobody is receiving; the next batch releases the last.

        Some belong to rows that wait for placement: while a batch is held, discard those without a row. A SELECT does
        not tell, because a front may have died with its COMMIT under way: insert a doomed row, which waits for such a
        commit and keeps out later ones. Exhaust or close the generator. Raises BlobStoreUnavailable.
        """

    def disk(self) -> Disk | None:
        """Measure the disk; None for a store without one of its own. Raises BlobStoreUnavailable."""

    def measure(self, blobs: Sequence[Blob]) -> Mapping[UUID, Stored]:
        """Look what is there of blobs, by version id; read nothing. Raises BlobStoreUnavailable."""

    def list_placed(self) -> Generator[Sequence[Stored], None, None]:
        """List everything at its final place, in batches: to audit, never to find garbage. Raises BlobStoreUnavailable.

        What is placed or removed meanwhile may be among it, or not.
        """

    def check(self) -> None:
        """Raise BlobStoreUnavailable, StorageFull or StorageReadOnly unless the store can be written to right now."""


def parse_version_id(name: str) -> UUID | None:
    """Read the name of a blob; None for any other name."""
    try:
        version_id = UUID(name)
    except ValueError:
        return None
    return version_id if str(version_id) == name else None


def for_each(items: Iterable[Item], act: Callable[[Item], None]) -> dict[Item, DomainError]:
    """Do something to each item, whatever becomes of the others; return what failed."""
    failures: dict[Item, DomainError] = {}
    for item in items:
        try:
            act(item)
        except DomainError as error:
            failures[item] = error
    return failures
