"""Start and stop child processes that never outlive this process.

Each child runs in its own session, so that a terminal's Ctrl-C reaches only this process. `launcher.py` makes the
kernel signal the child when this process ends. Spawn from the main thread: the kernel watches the thread that forked.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

LAUNCHER = Path(__file__).with_name("launcher.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program to run: the command, the rights of its process, and how to start and stop the process."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    directory: Path | None = None
    log: Path | None = None  # a file that receives the output; without it the caller receives the output
    prefix: tuple[str, ...] = ()  # a command that starts the program, for example `nsenter`
    account: str | None = None  # the account of the process; only root may choose another account
    reach_all_paths: bool = False  # may traverse all directories, but use only these paths:
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    prepare: Callable[[], None] | None = None  # runs before every start
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL  # sent by the kernel when this process is killed
    stop_seconds: float = 10.0
    stage: int = 0  # higher stages are stopped first


def spawn(program: Program) -> subprocess.Popen[bytes]:
    """Start a program and return its process. Unless the program has a log, `stdout` is a pipe with its output."""
    if program.prepare is not None:
        program.prepare()
    # Pass -I -S: the launcher needs no packages, and importing site would take longer than the rest of the start.
    command = [sys.executable, "-I", "-S", str(LAUNCHER), "--parent", str(os.getpid())]
    command += ["--death-signal", str(int(program.death_signal))]
    command += ["--account", program.account] if program.account else []
    command += ["--reach-all-paths"] if program.reach_all_paths else []
    command += [f"--read={path}" for path in program.readable]
    command += [f"--write={path}" for path in program.writable]
    with contextlib.ExitStack() as stack:
        output: int | IO[bytes] = subprocess.PIPE
        if program.log is not None:
            output = stack.enter_context(program.log.open("ab"))
        return subprocess.Popen(
            [*program.prefix, *command, "--", *program.command],
            # Give the child no terminal: the kernel would stop (SIGTTIN) a child that reads from this terminal.
            stdin=subprocess.DEVNULL,
            stdout=output,
            # Use one pipe for both outputs, to keep the order of their lines.
            stderr=subprocess.STDOUT,
            cwd=program.directory,
            env=dict(program.environment),
            start_new_session=True,
        )


def stop(process: subprocess.Popen[bytes], program: Program) -> bool:
    """Send the stop signal, wait `stop_seconds`, then kill the session. Return whether the process ended in time."""
    if process.poll() is None:
        process.send_signal(program.stop_signal)
    try:
        process.wait(timeout=program.stop_seconds)
    except subprocess.TimeoutExpired:
        kill(process)
        return False
    kill(process)  # also kill children that the program left in its session
    return True


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and all other processes of its session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
