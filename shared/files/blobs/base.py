"""The interface of blob stores, through which the files domain stores bytes: its guarantees and its errors.

A blob is the content of one version. Its key contains the version's id, and no other blob ever has the same key, so a
removal needs no reference counts. The blob's row in the database has its state. Each method may be repeated after a
crash at any point:

    (record) → begin → (record its id) → receive → write … → seal → (commit the row) → release → place → open … → remove
                                            └── discard, on any failure before the commit

Committed content is never lost, and uncommitted content is always found again, if the caller keeps this order:

- Call `discard` only if no commit was attempted. After a commit with unknown outcome, call `release`: if the commit
  inserted a row, the bytes are kept; otherwise a sweep deletes the bytes.
- Delete a blob's row only after `remove` returned without naming that blob.
- `BlobMissing` raises an alarm and a retry; it is never a reason to delete a row.

Rows, leases, retries and the digest of the content are left to the files domain.
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
"""The upload id of a blob if a process may have begun the upload and crashed before it recorded the id."""


class BlobStoreUnavailable(ServiceUnavailable):
    """The store of file content does not respond at the moment; retry."""

    code = "blob_store_unavailable"
    is_wrong = False
    """Whether the store that responded is not the store of this database."""

    @classmethod
    def wrong(cls, detail: str) -> Self:
        """Return the error for a store that is not the store of this database."""
        error = cls(detail)
        error.is_wrong = True
        return error


class StorageFull(DomainError):
    """The store of file content is full; stored content can be read."""

    code = "storage_full"
    kind = Kind.STORAGE_FULL

    def __init__(self, detail: str | None = None) -> None:
        """Make an error to be retried after some seconds: an operator has to free space."""
        super().__init__(detail, retry_after_seconds=STORAGE_RETRY_SECONDS)


class StorageReadOnly(DomainError):
    """The store of file content is read-only at the moment; stored content can be read."""

    code = "storage_read_only"
    kind = Kind.STORAGE_FULL

    def __init__(self, detail: str | None = None) -> None:
        """Make an error to be retried after some seconds: an operator has to mount the disk again."""
        super().__init__(detail, retry_after_seconds=STORAGE_RETRY_SECONDS)


class BlobMissing(DomainError):
    """The store does not have this content at the moment."""

    code = "blob_missing"
    kind = Kind.UNAVAILABLE


class BlobDamaged(DomainError):
    """The stored bytes of this content do not match its digest."""

    code = "blob_damaged"
    kind = Kind.UNAVAILABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """The values by which a store places or removes a blob; the blob's row keeps it.

    `upload_id` and `checksum` are the store's own, None if it needs none. With UNKNOWN_UPLOAD a removal searches for
    uploads to abort.
    """

    version_id: UUID
    size_bytes: int
    upload_id: str | None = None
    checksum: str | None = None
    chunk_checksums: bytes | None = field(default=None, repr=False)
    """The checksums of the chunks of content just received (`chunks`); None if the store verifies itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The size of a store's disk, and the bytes that the service may still use."""

    size_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The bytes that a store has of a blob; `is_placed` means at their final place."""

    version_id: UUID
    size_bytes: int
    is_placed: bool


@dataclass(frozen=True, slots=True)
class AtMost:
    """The size of content whose length was not announced: at most so many bytes."""

    size_bytes: int


Size = int | AtMost
"""The size of content to receive: exactly so many bytes, or at most."""


def largest(size: Size) -> int:
    """Return the most bytes that content of this size may have."""
    return size.size_bytes if isinstance(size, AtMost) else size


class Receiver(Protocol):
    """One upload on its way into the store, in constant memory; used by one thread."""

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Append a chunk; the caller may reuse its buffer afterwards.

        The caller counts: more than the announced size or bound is a ValueError. Raises BlobStoreUnavailable,
        StorageFull, StorageReadOnly.
        """

    def seal(self) -> Blob:
        """Make every byte durable and return the values to record. Raises BlobStoreUnavailable, StorageFull.

        A failed seal is final (the kernel reports a lost write once): discard, and respond with the error. Fewer bytes
        than an announced size are a ValueError.
        """

    def release(self) -> None:
        """Release the bytes after the commit or an attempt at one: from now on sweeps may check them."""

    def discard(self) -> None:
        """Delete the received bytes. After `release` or an earlier `discard`, do nothing. Never raises."""


class BlobReader(Protocol):
    """An open blob. A local reader continues even if the blob is removed meanwhile."""

    @property
    def file(self) -> FileIO | None:
        """The file itself, at offset 0, for sendfile; None if the bytes come over the network."""

    @property
    def fixed_path(self) -> str | None:
        """The path below the store's root for a front proxy, of a file that will not move; None for others."""

    def chunks(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes start..stop (exclusive). The request is sent, and may be refused, before this returns.

        Raises BlobMissing, BlobDamaged (fewer bytes than requested), BlobStoreUnavailable; the latter two also from the
        iterator, if the store interrupts the stream and does not resume.
        """

    def close(self) -> None:
        """Close the file or connection; idempotent."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...


class UnlockedUpload(Protocol):
    """Staged bytes that no running process receives; locked against all others while the caller holds it."""

    @property
    def version_id(self) -> UUID:
        """The version for which the bytes were received."""

    def discard(self) -> None:
        """Delete the bytes; only if they have no row, and can get none any more (see `list_unlocked`). Never raises."""


class BlobStore(Protocol):
    """A store of content. Each verb may be repeated, and may run in many threads and processes at once."""

    @property
    def staged_is_readable(self) -> bool:
        """Whether `open` finds a blob after it is sealed and before it is placed."""

    @property
    def records_before_receiving(self) -> bool:
        """Whether a row must be committed before `begin`, and the upload id before the first byte.

        Until then the row has UNKNOWN_UPLOAD, by which a removal finds the upload.
        """

    @property
    def verifies_itself(self) -> bool:
        """Whether the store itself detects decayed content, so that the service need not read it again."""

    def require(self) -> None:
        """Raise BlobStoreUnavailable unless this is the store that the database knows.

        Call it before claiming rows for the store; verbs that change the store check it themselves.
        """

    def begin(self, version_id: UUID) -> str | None:
        """Announce an upload; return the upload id to record, or None. Raises BlobStoreUnavailable."""

    def receive(self, version_id: UUID, *, size_bytes: Size, upload_id: str | None = None) -> Receiver:
        """Return a receiver for so many bytes. Raises BlobStoreUnavailable, StorageFull, StorageReadOnly."""

    def place(self, blobs: Sequence[Blob]) -> Mapping[UUID, DomainError]:
        """Move sealed blobs to their final place, durably; return the failures by version id.

        A blob that is placed already is a success. A failure (BlobMissing, BlobDamaged, BlobStoreUnavailable,
        StorageFull) delays no other blob.
        """

    def open(self, version_id: UUID, *, placed: bool) -> BlobReader:
        """Return a reader of a blob; `placed` says where to look first and may be out of date.

        Raises BlobMissing, and BlobStoreUnavailable also while the wrong store is mounted; a store across the network
        sends no request yet and raises them from `chunks`.
        """

    def can_read_staged(self, version_id: UUID) -> bool:
        """Return whether `open` finds this blob, which is sealed and not placed. Raises BlobStoreUnavailable."""

    def remove(self, blobs: Sequence[Blob]) -> Mapping[UUID, DomainError]:
        """Delete blobs in any state, durably; return the failures by version id.

        A blob without bytes is a success. After a success no placement, however late, restores the blob.
        """

    def abort(self, version_id: UUID) -> None:
        """Delete what was received of a blob; placed bytes stay. Raises BlobStoreUnavailable."""

    def list_unlocked(self, *, batch_size: int = 200) -> Generator[Sequence[UnlockedUpload], None, None]:
        """Yield batches of staged bytes that no process receives, locked until the next batch.

        Some belong to rows that wait for placement: while a batch is locked, discard those without a row. A SELECT is
        not enough, because a web process may have crashed while its COMMIT was running: insert a row pending deletion,
        which waits for such a commit and excludes later ones. Exhaust or close the generator. Raises
        BlobStoreUnavailable.
        """

    def disk(self) -> Disk | None:
        """Return the disk's figures; None for a store without a disk of its own. Raises BlobStoreUnavailable."""

    def measure(self, blobs: Sequence[Blob]) -> Mapping[UUID, Stored]:
        """Return the stored sizes of blobs, by version id, without reading content. Raises BlobStoreUnavailable."""

    def list_placed(self) -> Generator[Sequence[Stored], None, None]:
        """Yield all placed blobs in batches: for audits, never to find garbage. Raises BlobStoreUnavailable.

        Blobs that are placed or removed meanwhile may be included or not.
        """

    def check(self) -> None:
        """Raise BlobStoreUnavailable, StorageFull or StorageReadOnly unless the store accepts writes now."""


def parse_version_id(name: str) -> UUID | None:
    """Return the version id that a blob's name is; None for any other name."""
    try:
        version_id = UUID(name)
    except ValueError:
        return None
    return version_id if str(version_id) == name else None


def for_each(items: Iterable[Item], act: Callable[[Item], None]) -> dict[Item, DomainError]:
    """Apply a function to each item, and continue after a failure; return the failures."""
    failures: dict[Item, DomainError] = {}
    for item in items:
        try:
            act(item)
        except DomainError as error:
            failures[item] = error
    return failures
