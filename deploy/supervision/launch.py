"""Become another program, bound to the life of the process that asked for it.

Run as a script (`python -I -S launch.py …`) between a supervisor and the program, so that the program dies with the
supervisor even by SIGKILL, and so that Postgres, which refuses to run as root, gets an unprivileged account without
capabilities. Where its files lie below closed directories (a checkout in /root), it keeps the one to pass them, and
reaches named files only.
"""

import argparse
import ctypes
import os
import pwd
import sys
from importlib import import_module
from pathlib import Path

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Bind, change account if asked, and execute the command."""
    options = _read_options()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if options.account:
        _change_account(options)
    bind_to_parent(options.death_signal)  # after the change of account, which clears it
    if os.getppid() != options.parent:
        sys.exit("The process that started this one is gone.")
    try:
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


def bind_to_parent(death_signal: int) -> None:
    """Make the kernel send this process a signal when its parent (precisely: the parent's thread) ends."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), f"prctl: {os.strerror(ctypes.get_errno())}")


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", type=int, required=True, help="pid whose end ends the program")
    parser.add_argument(
        "--death-signal", type=int, required=True, help="signal sent to the program at that end"
    )
    parser.add_argument("--account", help="account to run as; root only")
    parser.add_argument(
        "--reach-all-paths", action="store_true", help="keep the right to pass closed directories"
    )
    parser.add_argument("--read", action="append", default=[], help="with it: what the program may read")
    parser.add_argument("--write", action="append", default=[], help="with it: what the program may write")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser.parse_args()


def _change_account(options: argparse.Namespace) -> None:
    # This runs isolated and without packages: the module beside this one is found by its directory alone.
    sys.path.insert(0, str(Path(__file__).parent))
    sandbox = import_module("sandbox")

    account = pwd.getpwnam(options.account)
    closed = options.reach_all_paths
    keep = (sandbox.CAP_DAC_READ_SEARCH, sandbox.CAP_DAC_OVERRIDE) if closed else ()
    sandbox.drop_capabilities(keep)
    if closed:
        sandbox.keep_over_change_of_account()
    os.setgroups([])
    os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
    os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
    os.environ["HOME"] = account.pw_dir
    sandbox.gain_no_privileges()
    if closed:
        sandbox.keep_path_capability()
        sandbox.confine_to(options.read, options.write)


if __name__ == "__main__":
    main()
