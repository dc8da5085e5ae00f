"""The directory of a local store: its marker, its subdirectories, and whether it accepts writes.

    <root>/store-id      the marker (`marker`)
    <root>/staging, <root>/objects/00 … ff

Nothing is created in it before its marker was compared. Blobs are left to `local` and `staging`.
"""
# Plain strings and calls of `os`, as in `local`.
# ruff: noqa: PTH102, PTH108, PTH110, PTH116, PTH208

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import UUID

from shared.files.blobs.base import BlobStoreUnavailable, Disk, Stored, parse_version_id
from shared.files.blobs.marker import MARKER, parse_store_id
from shared.files.blobs.staging import FILE_MODE, require_room, sync_directory, translated_errors
from shared.ids import new_id

DIRECTORY_MODE = 0o700
PROBE_BYTES = 4096
LISTED = 1000
SHARDS = tuple(f"{number:02x}" for number in range(256))


class LocalDirectory:
    """A directory that is, or will become, a store."""

    def __init__(self, root: Path) -> None:
        self.address = str(root)
        self.staging = f"{root}/staging"
        self.objects = f"{root}/objects"
        self._marker = f"{root}/{MARKER}"

    @contextmanager
    def pinned(self) -> Iterator[LocalDirectory]:
        """Yield the directory that is mounted now: it stays the same in the block, also after an unmount."""
        with translated_errors():
            descriptor = os.open(self.address, os.O_PATH | os.O_DIRECTORY)
        try:
            yield LocalDirectory(Path(f"/proc/self/fd/{descriptor}"))
        finally:
            os.close(descriptor)

    def staging_path(self, version_id: UUID) -> str:
        """Return the path at which a blob is received."""
        return f"{self.staging}/{version_id}"

    def object_path(self, version_id: UUID) -> str:
        """Return the path at which a blob is placed."""
        return f"{self.objects}/{shard(version_id)}/{version_id}"

    def fingerprint(self) -> object | None:
        """Return the identity of the marker's file; None without a marker."""
        with translated_errors():
            try:
                status = os.stat(self._marker, follow_symlinks=False)
            except (FileNotFoundError, NotADirectoryError):
                return None
        return status.st_dev, status.st_ino, status.st_mtime_ns

    def identify(self) -> list[tuple[int, int]]:
        """Return the identity of the subdirectories, for a store without a marker."""
        with translated_errors():
            found = [os.stat(directory) for directory in (self.staging, self.objects)]
        return [(status.st_dev, status.st_ino) for status in found]

    def find_id(self) -> UUID | None:
        """Return the id in the marker; None without a marker."""
        with translated_errors():
            try:
                with open(self._marker, encoding="ascii", errors="replace") as marker:  # noqa: PTH123
                    written = marker.read(100)
            except (FileNotFoundError, NotADirectoryError):
                return None
        return parse_store_id(written)

    def write_id(self, store_id: UUID) -> None:
        """Write the marker completely or not at all, and never over another."""
        unfinished = f"{self._marker}.{new_id()}"
        with translated_errors():
            _make_directory(Path(self.address))
            try:
                _write_durably(unfinished, f"{store_id}\n".encode())
                with suppress(FileExistsError):
                    # A link and not a rename: a rename would replace a marker that another process wrote meanwhile.
                    os.link(unfinished, self._marker)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(unfinished)
            sync_directory(self.address)

    def is_empty(self) -> bool:
        """Return whether no directory has a blob."""
        with translated_errors():
            return not any(
                _names(at) for at in (self.staging, *(f"{self.objects}/{name}" for name in SHARDS))
            )

    def holds(self, version_id: UUID) -> bool:
        """Return whether a blob is placed or staged."""
        return os.path.exists(self.object_path(version_id)) or os.path.exists(self.staging_path(version_id))

    def find(self, version_id: UUID) -> Stored | None:
        """Return the placed or staged file of a blob, None if there is neither."""
        placed, staged = self.object_path(version_id), self.staging_path(version_id)
        # The object twice: the blob may be moving from staging while it is looked for.
        for path in (placed, staged, placed):
            with translated_errors(), suppress(FileNotFoundError):
                size_bytes = os.stat(path, follow_symlinks=False).st_size
                return Stored(version_id=version_id, size_bytes=size_bytes, is_placed=path is placed)
        return None

    def list_placed(self) -> Generator[Sequence[Stored], None, None]:
        """Yield the placed blobs, some of one directory at a time; files with other names are ignored."""
        for name in SHARDS:
            with translated_errors():
                names = _names(f"{self.objects}/{name}")
            for start in range(0, len(names), LISTED):
                ids = (parse_version_id(at) for at in names[start : start + LISTED])
                found = (self.find(at) for at in ids if at is not None and shard(at) == name)
                yield [stored for stored in found if stored is not None and stored.is_placed]

    def prepare(self) -> None:
        """Create the missing directories, durably."""
        with translated_errors():
            for directory in (self.staging, self.objects):
                _make_directory(Path(directory))
            sync_directory(self.address)
            missing = set(SHARDS) - set(os.listdir(self.objects))
            for name in missing:
                with suppress(FileExistsError):
                    os.mkdir(f"{self.objects}/{name}", DIRECTORY_MODE)
            if missing:
                sync_directory(self.objects)

    def disk(self) -> Disk:
        """Return the disk's figures for an account without privileges."""
        with translated_errors():
            space = os.statvfs(self.address)
        return Disk(size_bytes=space.f_blocks * space.f_frsize, free_bytes=space.f_bavail * space.f_frsize)

    def probe(self, reserve_bytes: int) -> None:
        """Write a small file, durably. Raises StorageFull, StorageReadOnly, BlobStoreUnavailable."""
        with translated_errors():
            require_room(self.address, reserve_bytes)
            probe = f"{self.address}/.probe-{os.getpid()}"
            try:
                _write_durably(probe, bytes(PROBE_BYTES))
            finally:
                with suppress(OSError):
                    os.unlink(probe)
        for directory in (self.staging, self.objects):
            if not os.access(directory, os.W_OK | os.X_OK):
                raise BlobStoreUnavailable("The directory of the blob store is not writable.")


def shard(version_id: UUID) -> str:
    """Return the name of the object directory in which a blob is placed."""
    return f"{version_id.int & 0xFF:02x}"


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def _write_durably(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, FILE_MODE)
    try:
        if os.write(descriptor, content) != len(content):
            os.write(descriptor, content)  # raises the reason why the first write was short
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_directory(path: Path) -> None:
    """Create a directory and its parents, each durable before anything is created in it."""
    if path.is_dir():
        return
    _make_directory(path.parent)
    with suppress(FileExistsError):  # another process was first
        os.mkdir(path, DIRECTORY_MODE)
    sync_directory(str(path.parent))
