"""Restrict a process before it executes another program: drop capabilities, and limit file access with Landlock.

`launcher.py` runs without packages, so this module imports only the standard library. Functions skip restrictions that
the kernel does not support. No function grants a right.
"""

import ctypes
import os
from collections.abc import Iterable

PR_SET_KEEPCAPS, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 8, 24, 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 47, 2
CAPABILITY_VERSION_3 = 0x20080522
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
LAST_CAPABILITY = 63

LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
LANDLOCK_VERSION, LANDLOCK_PATH_BENEATH = 1, 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REFER, TRUNCATE = 1 << 13, 1 << 14
# List the rights of each version of Landlock, because the kernel rejects a ruleset with unknown rights.
RIGHTS_BY_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE
READING = EXECUTE | READ_FILE | READ_DIR
# Every program needs these files: libraries, a shell, account names, time zones and shared memory.
SYSTEM_TO_READ = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/sys/devices/system", "/proc/meminfo"),
    *(
        "/etc/ld.so.cache",
        "/etc/passwd",
        "/etc/group",
        "/etc/nsswitch.conf",
        "/etc/localtime",
        "/etc/timezone",
    ),
)
SYSTEM_TO_WRITE = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/shm", "/dev/tty")  # noqa: S108

_libc = ctypes.CDLL(None, use_errno=True)


def drop_capabilities(keep: Iterable[int]) -> None:
    """Limit the capabilities of this process and of its children to `keep`, permanently. Only root can do this."""
    for capability in set(range(LAST_CAPABILITY + 1)) - set(keep):
        # Ignore the result, because the kernel returns an error for numbers that it does not know.
        _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def keep_over_change_of_account() -> None:
    """Make the kernel preserve the capabilities at the next change of account, instead of clearing them."""
    check(_libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0), "prctl")


def keep_path_capability() -> None:
    """Keep the capability to traverse and read all directories when the process executes another program."""
    # Try the narrower capability first, but some containers grant only the wider capability.
    for capability in (CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE):
        mask = 1 << capability
        header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
        data = (ctypes.c_uint32 * 6)(mask, mask, mask, 0, 0, 0)
        if _libc.capset(header, data) == 0:
            _libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0)
            return


def gain_no_privileges() -> None:
    """Disable set-user-id programs and file capabilities for this process and its children."""
    check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")


def confine_to(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Deny access to all files except the given paths and system files. Does nothing if the kernel has no Landlock."""
    version = _libc.syscall(LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_VERSION)
    if version < 1:
        return
    rights = RIGHTS_BY_VERSION[min(version, max(RIGHTS_BY_VERSION))]
    attributes = ctypes.c_uint64(rights)
    rules = _libc.syscall(LANDLOCK_CREATE_RULESET, ctypes.byref(attributes), ctypes.sizeof(attributes), 0)
    check(rules, "landlock_create_ruleset")
    for path in (*SYSTEM_TO_READ, *readable):
        _allow(rules, path, READING & rights)
    for path in (*SYSTEM_TO_WRITE, *writable):
        _allow(rules, path, rights)
    # Give up privileges first: landlock_restrict_self requires this unless the process is privileged.
    gain_no_privileges()
    check(_libc.syscall(LANDLOCK_RESTRICT_SELF, rules, 0), "landlock_restrict_self")
    os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        file = os.open(path, os.O_PATH | os.O_CLOEXEC)
    # Skip missing files, which need no rule: not every system has all of these paths, for example /lib32.
    except FileNotFoundError:
        return
    if not os.path.isdir(path):  # noqa: PTH112 - importing pathlib would double the start time
        rights &= OF_FILES
    # Write a struct landlock_path_beneath_attr, which is packed: first the rights, then the descriptor.
    rule = rights.to_bytes(8, "little") + file.to_bytes(4, "little", signed=True)
    check(_libc.syscall(LANDLOCK_ADD_RULE, rules, LANDLOCK_PATH_BENEATH, rule, 0), "landlock_add_rule")
    os.close(file)


def check(result: int, call: str) -> None:
    """Raise OSError if a libc call failed."""
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{call}: {os.strerror(ctypes.get_errno())}")
