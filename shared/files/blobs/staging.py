"""The staging directory of the local store: uploads being received, and those that no process receives any more.

A staged file is locked from before its first byte until its row is committed, so a lock that can be taken means that
its process has crashed or finished. `flock` ends with the process; hosts may share the directory only if their file
system supports it (NFSv4 does; a mount with `local_lock` does not).
"""
# Plain strings and calls of `os`, as in `local`.
# ruff: noqa: PTH108, PTH116, PTH208

import ctypes
import errno
import fcntl
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from uuid import UUID

from shared.files.blobs.base import (
    AtMost,
    Blob,
    BlobStoreUnavailable,
    Size,
    StorageFull,
    StorageReadOnly,
    largest,
    parse_version_id,
)
from shared.files.blobs.chunks import ChunkChecksums
from shared.files.blobs.measuring import measured

# Content is of the service alone; other accounts of the host read nothing.
FILE_MODE = 0o600
UNLOCKED_SUFFIX = ".new"
WRITEBACK_BYTES = 8 << 20
# Each attempt fails only if a sweep runs between two system calls.
LOCK_ATTEMPTS = 100
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_SYNC_FILE_RANGE_WRITE = 2


@contextmanager
def translated_errors() -> Iterator[None]:
    """Translate errors of the file system into errors of the domain."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull from error
        raise StorageReadOnly() if error.errno == errno.EROFS else BlobStoreUnavailable() from error


def sync_directory(path: str) -> None:
    """Make the names in a directory durable. Raises OSError."""
    # Opened each time: a lost write is reported once per open file, and another thread might receive that report.
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class LocalReceiver:
    """Writes one upload to its locked staging file."""

    def __init__(
        self,
        directory: str,
        version_id: UUID,
        *,
        size_bytes: Size,
        reserve_bytes: int = 0,
        require: Callable[[], None] = lambda: None,
    ) -> None:
        """Create and lock the file. Raises StorageFull if the announced size cannot fit, BlobStoreUnavailable.

        `reserve_bytes` of the disk stay free; `require` raises unless the store is still the right one.
        """
        self._directory = directory
        self._reserve_bytes = reserve_bytes
        self._require = require
        self._path = f"{directory}/{version_id}"
        self._version_id = version_id
        self._size = size_bytes
        self._written = 0
        self._sent_to_disk = 0
        self._checksums = ChunkChecksums()
        self._sealed = False
        with translated_errors():
            announced = 0 if isinstance(size_bytes, AtMost) else size_bytes
            require_room(directory, announced + reserve_bytes)
            self._descriptor: int | None = _create_locked(self._path)

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Append a chunk, and start writeback of each 8 MiB, so that the final flush is short."""
        descriptor = self._open_descriptor()
        with memoryview(chunk).cast("B") as view:
            if self._written + len(view) > largest(self._size):
                raise ValueError("more bytes than announced")
            with translated_errors():
                done = 0
                while done < len(view):
                    done += os.write(descriptor, view[done:])
            self._checksums.update(view)
        self._written += done
        if self._written - self._sent_to_disk >= WRITEBACK_BYTES:
            _start_writeback(descriptor, self._sent_to_disk, self._written - self._sent_to_disk)
            self._sent_to_disk = self._written
            with translated_errors():
                require_room(self._directory, self._reserve_bytes)

    @measured("seal")
    def seal(self) -> Blob:
        """Flush the bytes, then the name; after an error delete the file: a second flush would report success."""
        descriptor = self._open_descriptor()
        if not isinstance(self._size, AtMost) and self._written != self._size:
            raise ValueError("fewer bytes than announced")
        try:
            with translated_errors():
                os.fdatasync(descriptor)
                sync_directory(self._directory)
                # Bytes behind a lost mount are durable and yet unreachable: they must not be committed.
                self._require_name(descriptor)
            self._require()
        except BaseException:
            self.discard()
            raise
        self._sealed = True
        return Blob(
            version_id=self._version_id, size_bytes=self._written, chunk_checksums=self._checksums.finish()
        )

    def release(self) -> None:
        """Close the file, which releases the lock."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with suppress(OSError):
                os.close(descriptor)

    def discard(self) -> None:
        """Unlink the file while it is locked, then close it; after an abort another upload may have its name."""
        if self._descriptor is not None:
            with suppress(OSError, BlobStoreUnavailable):
                self._require_name(self._descriptor)
                os.unlink(self._path)
            self.release()

    def _require_name(self, descriptor: int) -> None:
        """Raise unless the name still leads to these bytes: a volume may have been unmounted or mounted meanwhile."""
        if not os.path.samestat(os.stat(self._path, follow_symlinks=False), os.fstat(descriptor)):
            raise BlobStoreUnavailable("The directory of the blob store was replaced while in use.")

    def _open_descriptor(self) -> int:
        if self._descriptor is None or self._sealed:
            raise ValueError("this upload is over")
        return self._descriptor


class LocalUnlocked:
    """A staging file that this process has locked because no other had."""

    __slots__ = ("_descriptor", "_path", "version_id")

    def __init__(self, path: str, version_id: UUID, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self.version_id = version_id

    def discard(self) -> None:
        """Unlink the file; if that fails, the next sweep finds it again."""
        with suppress(OSError):
            os.unlink(self._path)

    def release(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)


def list_unlocked(directory: str, batch_size: int) -> Generator[Sequence[LocalUnlocked], None, None]:
    """Lock and yield the files that no other process has locked, at most `batch_size` at a time."""
    batch: list[LocalUnlocked] = []
    with translated_errors():
        names = os.listdir(directory)
    try:
        for name in names:
            with translated_errors():
                found = _find_unattended(directory, name)
            if found is not None:
                batch.append(found)
            if len(batch) >= batch_size:
                yield tuple(batch)
                _release_all(batch)
        if batch:
            yield tuple(batch)
    finally:
        _release_all(batch)


def _release_all(batch: list[LocalUnlocked]) -> None:
    while batch:
        batch.pop().release()


def _find_unattended(directory: str, name: str) -> LocalUnlocked | None:
    version_id = parse_version_id(name.removesuffix(UNLOCKED_SUFFIX))
    if version_id is None:
        return None
    path = f"{directory}/{name}"
    try:
        # For writing: where NFS carries flock, an exclusive lock needs a file open for writing.
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None  # placed or discarded since the directory was read
    if not _is_lockable(descriptor):
        os.close(descriptor)
        return None
    found = LocalUnlocked(path, version_id, descriptor)
    if not name.endswith(UNLOCKED_SUFFIX):
        return found
    found.discard()
    found.release()
    return None


def _is_lockable(descriptor: int) -> bool:
    """Return whether the file could be locked: it is not being received, and was not deleted since it was opened."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    # Without this check two sweeps could delete an upload: one deletes a file that is not locked yet, its receiver
    # starts again under the same name, and the other sweep, with the lock of the first file, deletes the second.
    return os.fstat(descriptor).st_nlink > 0


def _create_locked(path: str) -> int:
    """Create a file under a temporary name, lock it, then link its own name.

    A sweep may delete it before it is locked; so check, with the lock, that it still has a name, and else start again.
    """
    unlocked = path + UNLOCKED_SUFFIX
    for _ in range(LOCK_ATTEMPTS):
        descriptor = os.open(unlocked, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE_MODE)
        try:
            # Under its own name only with its lock: a sweep deletes every file that it can lock.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink > 0:
                os.link(unlocked, path)  # unlike a rename it never replaces an existing name
                os.unlink(unlocked)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise OSError(errno.EAGAIN, "every new staging file was swept away before it could be locked")


def require_room(directory: str, size_bytes: int) -> None:
    """Refuse early what cannot fit; space may still run out while content is written. Raises OSError."""
    # Not fallocate: with early writeback it measured no faster, and a caller that never sends a byte could reserve any
    # amount of disk.
    space = os.statvfs(directory)
    if size_bytes > space.f_bavail * space.f_frsize:
        raise OSError(errno.ENOSPC, "no room for the announced size")


def _start_writeback(descriptor: int, offset: int, size_bytes: int) -> None:
    """Start the kernel's writeback of a range in the background; errors appear at the flush."""
    if (call := _sync_file_range()) is not None:
        call(descriptor, offset, size_bytes, _SYNC_FILE_RANGE_WRITE)


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Return Linux's sync_file_range(2), which Python does not offer; None if there is none."""
    try:
        function = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    function.restype = ctypes.c_int
    return function
