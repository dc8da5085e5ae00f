"""Stop servers of an earlier run that still use the same data directory.

After a reboot, a pid file may contain the id of an unrelated process. So a process is stopped only if its command line
contains the data directory.
"""

import signal
from pathlib import Path

import psutil


def stop_stale_process(
    pid_file: Path, marker: str, *, stop_signal: signal.Signals, stop_seconds: float
) -> None:
    """Stop the process of a pid file if its command line contains `marker`. After `stop_seconds`, kill the process.

    If no such process runs, delete the pid file, because the file could prevent the server from starting.
    """
    process = _find_process(pid_file, marker)
    if process is None:
        pid_file.unlink(missing_ok=True)
        return
    # Ignore the error of a missing process: the process may end between any two of these calls.
    try:
        process.send_signal(stop_signal)
        process.wait(stop_seconds)
    except psutil.NoSuchProcess:
        return
    except psutil.TimeoutExpired:
        process.kill()
        process.wait()


def _find_process(pid_file: Path, marker: str) -> psutil.Process | None:
    try:
        process = psutil.Process(int(pid_file.read_text().split()[0]))
        return process if marker in process.cmdline() else None
    except (OSError, ValueError, IndexError, psutil.Error):
        return None
