"""Execute another program, and make the kernel signal that program when the parent process ends.

A supervisor runs this script (`python -I -S launcher.py …`), and the script executes the program. So the program ends
with the supervisor, even if the supervisor is killed. The script can also change the account, because Postgres refuses
to run as root. The program's files may be below a directory that only root can traverse, such as /root. In that case
the program keeps one capability to traverse directories, and Landlock confines the program to its own files.
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
    """Change the account if requested, bind to the parent, and execute the command."""
    options = _read_options()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if options.account:
        _change_account(options)
    bind_to_parent(options.death_signal)  # after the change of account, which clears the death signal
    # Check the parent: if it ended before the call above, the kernel would never send the signal.
    if os.getppid() != options.parent:
        sys.exit("The process that started this one has ended.")
    try:
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


def bind_to_parent(death_signal: int) -> None:
    """Make the kernel send a signal to this process when the thread that forked this process ends."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), f"prctl: {os.strerror(ctypes.get_errno())}")


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", type=int, required=True, help="pid of the expected parent")
    parser.add_argument(
        "--death-signal", type=int, required=True, help="signal that the kernel sends when the parent ends"
    )
    parser.add_argument("--account", help="account to run as; requires root")
    parser.add_argument(
        "--reach-all-paths", action="store_true", help="keep the capability to traverse all directories"
    )
    parser.add_argument("--read", action="append", default=[], help="path that such a program may read")
    parser.add_argument("--write", action="append", default=[], help="path that such a program may write")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser.parse_args()


def _change_account(options: argparse.Namespace) -> None:
    # Add the script's directory to the path, which -I omits, to import the module `sandbox` from it.
    sys.path.insert(0, str(Path(__file__).parent))
    sandbox = import_module("sandbox")

    account = pwd.getpwnam(options.account)
    keep = (sandbox.CAP_DAC_READ_SEARCH, sandbox.CAP_DAC_OVERRIDE) if options.reach_all_paths else ()
    # Keep this order: only root may drop capabilities, and the groups must change before the user.
    sandbox.drop_capabilities(keep)
    if options.reach_all_paths:
        sandbox.keep_over_change_of_account()
    os.setgroups([])
    os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
    os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
    os.environ["HOME"] = account.pw_dir
    sandbox.gain_no_privileges()
    if options.reach_all_paths:
        sandbox.keep_path_capability()
        sandbox.confine_to(options.read, options.write)


if __name__ == "__main__":
    main()
