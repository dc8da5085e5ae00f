"""Directories in memory for the files of temporary servers: a file costs a quarter of the time of one on disk.

A database has seven hundred files, and each test module has a database of its own.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MEMORY = Path("/dev/shm")
ROOM_BYTES = 4 << 30
"""Where less is free, as in a container that was given none, the disk has to do."""
_PREFIX = "quartermaster-tests-"


@contextmanager
def memory_directory(otherwise: Path) -> Iterator[Path]:
    """Yield a directory in memory that is removed after the block, or `otherwise` if memory is short."""
    if not has_room():
        yield otherwise
        return
    # Without this lock, another run could remove the directory as a leftover before it is locked itself.
    with _locked(MEMORY, fcntl.LOCK_EX):
        _remove_what_nobody_uses()
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=MEMORY))
        lock = _lock(directory, fcntl.LOCK_SH)
    directory.chmod(0o755)  # Servers run under an account of their own.
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def has_room() -> bool:
    """Return whether there is a file system in memory with enough room."""
    return MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM_BYTES


def is_in_memory(path: Path) -> bool:
    """Return whether a path lies there: leftovers in memory should be removed at once."""
    return path.is_relative_to(MEMORY)


def _remove_what_nobody_uses() -> None:
    for left in MEMORY.glob(f"{_PREFIX}*"):
        with suppress(OSError), _locked(left, fcntl.LOCK_EX | fcntl.LOCK_NB):
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _locked(directory: Path, how: int) -> Iterator[None]:
    lock = _lock(directory, how)
    try:
        yield
    finally:
        os.close(lock)


def _lock(directory: Path, how: int) -> int:
    """Lock a directory until the returned descriptor is closed, or the process has ended."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(opened, how)
    except OSError:
        os.close(opened)
        raise
    return opened
