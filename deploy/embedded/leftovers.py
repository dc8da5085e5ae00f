"""End servers that an earlier run left behind over the same data.

A number in a pid file proves nothing: a process is ours only if its command line names our data.
"""

import signal
from pathlib import Path

import psutil


def end_leftover(pid_file: Path, marker: str, *, stop_signal: signal.Signals, stop_seconds: float) -> None:
    """Stop the process named by the file if its command line contains `marker`; remove a file that names another."""
    process = _find_process(pid_file, marker)
    if process is None:
        pid_file.unlink(missing_ok=True)
        return
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
