"""Run a process with a wrong wall clock, which may change while it runs.

`python -m tests.support.processes.wrong_clock MODULE ARGUMENTS…` adds the seconds in the file `WRONG_CLOCK` to its
clock, and runs the module as `python -m` does. It patches the C library's `clock_gettime` in this process and its
forks: `time.time`, `datetime.now` and C libraries all use it. Waiting is not affected, because this Python waits by
the monotonic clock, as on a host whose clock is set.
"""

import ctypes
import mmap
import os
import runpy
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

VARIABLE = "WRONG_CLOCK"
_SECONDS = struct.Struct("<q")
_LATER = (
    b"\xb8\xe4\x00\x00\x00"  # mov eax, 228 (clock_gettime)
    b"\x0f\x05"  # syscall
    b"\x85\xc0\x75\x14"  # unless it succeeded, jump to the end
    b"\x85\xff\x75\x10"  # unless CLOCK_REALTIME was requested, jump to the end
    b"\x48\xb9%s"  # mov rcx, address of the seconds
    b"\x48\x8b\x09"  # mov rcx, [rcx]
    b"\x48\x01\x0e"  # add [rsi], rcx
    b"\xc3"  # ret
)
_JUMP = b"\x48\xb8%s\xff\xe0"  # mov rax, address; jmp rax


class WrongClock:
    """The clock of one process, backed by a file."""

    def __init__(self, path: Path, *, seconds: int = 0) -> None:
        """Start ahead by these seconds, or behind by a negative number."""
        self.path = path
        self.set(seconds)

    @property
    def settings(self) -> dict[str, str]:
        """Return the environment of the process with this clock."""
        return {VARIABLE: str(self.path)}

    def set(self, seconds: int) -> None:
        """Change the clock to these seconds after the right time."""
        # Write in place, never truncate: the process has the file mapped.
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT)
        try:
            os.pwrite(descriptor, _SECONDS.pack(seconds), 0)
        finally:
            os.close(descriptor)


def with_wrong_clock(command: Sequence[str]) -> list[str]:
    """Return a Python module's command, changed to use the clock that its environment names, if any."""
    at = command.index("-m")
    return [*command[:at], "-m", __name__, *command[at + 1 :]]


def main() -> None:
    """Patch the clock, then run the module in this process."""
    _, module, *arguments = sys.argv
    if VARIABLE in os.environ:
        _go_by(Path(os.environ[VARIABLE]))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _go_by(path: Path) -> None:
    """Overwrite the start of the C library's `clock_gettime` with a jump to our code."""
    with path.open("r+b") as file:
        # Shared with the process that sets the clock, and with forks.
        seconds = mmap.mmap(file.fileno(), _SECONDS.size)
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(_LATER % struct.pack("<Q", _address_of(seconds)))
    library = ctypes.CDLL(None, use_errno=True)
    function = ctypes.cast(library.clock_gettime, ctypes.c_void_p).value
    assert function is not None
    jump = _JUMP % struct.pack("<Q", _address_of(code))
    first_page = function & -mmap.PAGESIZE
    length = function + len(jump) - first_page
    everything = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
    if library.mprotect(ctypes.c_void_p(first_page), ctypes.c_size_t(length), everything) != 0:
        raise OSError(ctypes.get_errno(), "the C library's code cannot be changed here")
    ctypes.memmove(function, jump, len(jump))


def _address_of(mapped: mmap.mmap) -> int:
    """Return the address of a mapping and never unmap it: Python reads the clock while it exits."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(mapped))
    return ctypes.addressof(ctypes.c_char.from_buffer(mapped))


if __name__ == "__main__":
    main()
