"""Directories in memory, for servers whose files are soon thrown away: a file costs a quarter of one on disk.

A database is seven hundred files, and each module of the tests has one of its own.
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
    """Make a directory in memory that goes with the block; give `otherwise` where there is no room."""
    if not has_room():
        yield otherwise
        return
    with _locked(MEMORY, fcntl.LOCK_EX):  # between its making and its lock nobody takes it for left over
        _remove_what_nobody_uses()
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=MEMORY))
        lock = _lock(directory, fcntl.LOCK_SH)
    directory.chmod(0o755)  # servers run under an account of their own
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def has_room() -> bool:
    """Whether there is such a place, with room to spare."""
    return MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM_BYTES


def is_in_memory(path: Path) -> bool:
    """Whether a path lies there, where what is over is better removed at once."""
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
    """Lock a directory until what is given is closed, or its process has ended."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(opened, how)
    except OSError:
        os.close(opened)
        raise
    return opened
