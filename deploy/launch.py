"""Become another program, bound to the life of the process that asked for it.

Run as a script (`python -I -S launch.py …`): it stands between a supervisor and the program so that
the program dies with the supervisor even when that is killed with SIGKILL, and so that Postgres, which refuses to
run as root, runs as an unprivileged account where everything else is root. It owns nothing else.
"""

import argparse
import ctypes
import os
import pwd
import sys

PR_SET_PDEATHSIG = 1
PR_SET_KEEPCAPS = 8
PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 47, 2
CAPABILITY_VERSION_3 = 0x20080522
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2


def main() -> None:
    """Bind, change account if asked, and execute the command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", type=int, required=True, help="pid whose end ends the program")
    parser.add_argument(
        "--death-signal", type=int, required=True, help="signal sent to the program at that end"
    )
    parser.add_argument("--account", help="account to run as; root only")
    parser.add_argument(
        "--reach-all-paths", action="store_true", help="keep the right to pass closed directories"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if options.account:
        _change_account(options.account, reach_all_paths=options.reach_all_paths)
    bind_to_parent(options.death_signal)  # after the change of account, which clears it
    if os.getppid() != options.parent:
        sys.exit("The process that started this one is gone.")
    try:
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


def bind_to_parent(death_signal: int) -> None:
    """Have the kernel send this process a signal when its parent (precisely: the parent's thread) ends."""
    if sys.platform == "linux":
        _check(ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0), "prctl")


def _change_account(name: str, *, reach_all_paths: bool) -> None:
    account = pwd.getpwnam(name)
    libc = ctypes.CDLL(None, use_errno=True)
    if reach_all_paths:
        _check(libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0), "prctl")
    os.setgroups([])
    os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
    os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
    os.environ["HOME"] = account.pw_dir
    if reach_all_paths:
        _keep_path_capabilities(libc)


def _keep_path_capabilities(libc: ctypes.CDLL) -> None:
    """Hold on to file-access capabilities across exec: the checkout may lie below a directory like /root."""
    mask = 1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH
    for wanted in (mask, 1 << CAP_DAC_OVERRIDE):  # containers often grant only the second
        header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
        data = (ctypes.c_uint32 * 6)(wanted, wanted, wanted, 0, 0, 0)
        if libc.capset(header, data) == 0:
            break
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0)


def _check(result: int, call: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{call}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main()
