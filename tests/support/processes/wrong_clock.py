"""A process whose wall clock is wrong, and may be set while it runs; everybody else's is right.

`python -m tests.support.processes.wrong_clock MODULE ARGUMENTS…` makes its clock later by what the file says that
`WRONG_CLOCK` names, and becomes the module, as `python -m` would. The C library's own `clock_gettime` is changed, in
this process and in those it forks: `time.time`, `datetime.now` and libraries in C all go by it. Waiting does not: this
Python waits by the monotonic clock, which stays right, as it does on a host whose clock is set.
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
    b"\x85\xc0\x75\x14"  # unless it succeeded, to the end
    b"\x85\xff\x75\x10"  # unless CLOCK_REALTIME is asked for, to the end
    b"\x48\xb9%s"  # mov rcx, address of the seconds
    b"\x48\x8b\x09"  # mov rcx, [rcx]
    b"\x48\x01\x0e"  # add [rsi], rcx
    b"\xc3"  # ret
)
_JUMP = b"\x48\xb8%s\xff\xe0"  # mov rax, address; jmp rax


class WrongClock:
    """The clock of one process, by its file."""

    def __init__(self, path: Path, *, seconds: int = 0) -> None:
        """Let it be later by so many seconds, or earlier by a negative number."""
        self.path = path
        self.set(seconds)

    @property
    def settings(self) -> dict[str, str]:
        """The environment of the process that has this clock."""
        return {VARIABLE: str(self.path)}

    def set(self, seconds: int) -> None:
        """Have it jump to so many seconds after what is right."""
        # In place, and never cut short: the process has the file in its memory.
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT)
        try:
            os.pwrite(descriptor, _SECONDS.pack(seconds), 0)
        finally:
            os.close(descriptor)


def with_wrong_clock(command: Sequence[str]) -> list[str]:
    """Give the command of a Python module that goes by the clock its environment names, if it names one."""
    at = command.index("-m")
    return [*command[:at], "-m", __name__, *command[at + 1 :]]


def main() -> None:
    """Go by the wrong clock and become the module."""
    _, module, *arguments = sys.argv
    if VARIABLE in os.environ:
        _go_by(Path(os.environ[VARIABLE]))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _go_by(path: Path) -> None:
    """Put a jump to code of our own where the C library's `clock_gettime` begins."""
    with path.open("r+b") as file:
        seconds = mmap.mmap(file.fileno(), _SECONDS.size)  # shared with who sets the clock, and with forks
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
    """Give where it is for as long as the process lives: the clock is read while Python ends, too."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(mapped))
    return ctypes.addressof(ctypes.c_char.from_buffer(mapped))


if __name__ == "__main__":
    main()
