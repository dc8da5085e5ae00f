"""A small disk for one test, to be filled, made read-only, and unmounted; it needs the right to mount.

The bytes lie in a tmpfs beside it, which is bind-mounted as the disk: it returns with its content, as a volume does
after its mount was lost.
"""

import errno
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MEBIBYTE = 1 << 20
PATIENCE_SECONDS = 60.0


class CannotMount(Exception):
    """No disk can be mounted here; the message has the reason."""


class SmallDisk:
    """A disk mounted at `path`."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "disk"
        self._backing = directory / "backing"
        self._filler = self._backing / "filler"
        self.is_mounted = False

    def fill(self, *, leaving_bytes: int = 0) -> None:
        """Fill the disk except for this many bytes."""
        space = os.statvfs(self._backing)
        with self._filler.open("wb", buffering=0) as filler:
            with suppress(OSError):  # Other processes may take some of the room first.
                os.posix_fallocate(filler.fileno(), 0, space.f_bavail * space.f_frsize)
            with suppress(OSError):
                filler.seek(0, os.SEEK_END)
                while True:
                    filler.write(bytes(4096))
            filler.truncate(max(0, filler.tell() - leaving_bytes))

    def free(self) -> None:
        """Remove the filling."""
        self._filler.unlink(missing_ok=True)

    def make_read_only(self) -> None:
        """Make the disk read-only, as a kernel does after a file system error."""
        self._remount("ro")

    def make_writable(self) -> None:
        self._remount("rw")

    def lose(self) -> None:
        """Unmount the disk: the bare directory below it appears. Open files stay usable."""
        if self.is_mounted:
            _run("umount", "--lazy", str(self.path))
            self.is_mounted = False

    def find(self) -> None:
        """Mount the disk again."""
        if not self.is_mounted:
            _run("mount", "--bind", str(self._backing), str(self.path))
            self.is_mounted = True

    def repair(self) -> None:
        """Leave the disk mounted, writable and with room, whatever its state."""
        self.free()
        self.find()
        self.make_writable()

    def begin(self, size_bytes: int) -> None:
        self.path.mkdir(parents=True)
        self._backing.mkdir()
        if os.geteuid() != 0:
            raise CannotMount("only root may mount a small disk")
        _run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(self._backing))
        self.find()

    def end(self) -> None:
        with suppress(CannotMount):
            self.lose()
        with suppress(CannotMount):
            _run("umount", "--lazy", str(self._backing))

    def _remount(self, mode: str) -> None:
        """Remount, and retry while a process writes: the kernel refuses then."""
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return _run("mount", "-o", f"remount,bind,{mode}", str(self.path))
            except CannotMount as error:
                if os.strerror(errno.EBUSY) not in str(error) and "busy" not in str(error):
                    raise
                if time.monotonic() > give_up_at:
                    raise
                time.sleep(0.02)


@contextmanager
def mounted_disk(directory: Path, *, size_bytes: int = 16 * MEBIBYTE) -> Iterator[SmallDisk]:
    """Mount a disk below a directory for the block. Raises CannotMount."""
    disk = SmallDisk(directory)
    try:
        disk.begin(size_bytes)
        yield disk
    finally:
        disk.end()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotMount(f"{' '.join(command)}: {done.stderr.strip()}")
