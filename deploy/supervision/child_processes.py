"""Start and stop programs so that none outlives the process that started it.

Each runs in a session of its own, so that a terminal's Ctrl-C reaches only us; `launch.py` binds it to our life.
Start from the main thread: the kernel ties that bond to the thread, not to the process.
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

LAUNCHER = Path(__file__).with_name("launch.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program to run: its command, and how it wants to be started and stopped."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    directory: Path | None = None
    log: Path | None = None  # output goes to this file instead of to the caller
    prefix: tuple[str, ...] = ()  # what it is started by, such as `nsenter` into the network of another host
    account: str | None = None
    reach_all_paths: bool = False  # with an account: pass closed directories, and reach only what these name
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    prepare: Callable[[], None] | None = None  # runs before every start
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL  # what it gets when we are killed
    stop_seconds: float = 10.0
    stage: int = 0  # higher stages are stopped first


def spawn(program: Program) -> subprocess.Popen[bytes]:
    """Start the program; its output is a pipe at `stdout` unless it keeps a log."""
    if program.prepare is not None:
        program.prepare()
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
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=program.directory,
            env=dict(program.environment),
            start_new_session=True,
        )


def stop(process: subprocess.Popen[bytes], program: Program) -> bool:
    """Ask the process to end, wait its grace, then kill it and all its session; tell whether it ended by itself."""
    if process.poll() is None:
        process.send_signal(program.stop_signal)
    try:
        process.wait(timeout=program.stop_seconds)
    except subprocess.TimeoutExpired:
        kill(process)
        return False
    kill(process)
    return True


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and everything in its session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
