"""Directories in memory, for servers whose files are soon thrown away: a file costs a quarter of one on disk.

A database is seven hundred files, and each module of the tests has one of its own.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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
    _remove_what_nobody_uses()
    directory = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=MEMORY))
    directory.chmod(0o755)  # servers run under an account of their own
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def has_room() -> bool:
    """Whether there is such a place, with room to spare."""
    return MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM_BYTES


def is_in_memory(path: Path) -> bool:
    """Whether a path lies there, where what is over is better removed at once."""
    return path.is_relative_to(MEMORY)


def _remove_what_nobody_uses() -> None:
    for left in MEMORY.glob(f"{_PREFIX}*"):
        owner = left.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path("/proc", owner).exists():
            shutil.rmtree(left, ignore_errors=True)
