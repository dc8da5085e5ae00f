"""Supervise programs: start them, print their output, restart programs that end, and stop all programs in order.

One thread runs one loop, so every program is a child of the main thread (see `child_processes.py`), and no state needs
a lock. A program that fails repeatedly is restarted with exponential backoff. Restarts are unlimited, except during the
start.
"""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import FrameType
from typing import NoReturn, TextIO

from deploy.supervision.child_processes import Program, kill, spawn
from shared.runtime.retry import backoff_seconds

TICK_SECONDS = 0.1
FIRST_RESTART_SECONDS = 0.25
SLOWEST_RESTART_SECONDS = 5.0
BACKOFF_RESET_SECONDS = 10.0  # if a program has run for longer, its next restart has the shortest delay
STEADY_SECONDS = 1.0
FAILURES_AT_START = 4
LINE_LIMIT_BYTES = 64 * 1024
NAME_WIDTH = 18


class Interrupted(Exception):
    """The process received a stop signal."""


class ProgramFailed(Exception):
    """A program failed, could not start, or was not ready in time. The message names the program and the reason."""


@dataclass(slots=True)
class _Child:
    program: Program
    process: subprocess.Popen[bytes]
    started_at: float
    restart: bool
    failures: int = 0
    restart_at: float | None = None
    partial: bytes = b""
    drained: bool = field(default=False)


class Supervisor:
    """A supervisor of several programs. All methods must be called from the main thread."""

    def __init__(
        self, *, output: TextIO | None = None, record: Callable[[str, str], None] | None = None
    ) -> None:
        """Create a supervisor that passes each line of output to `record`, together with the program's name.

        Without `record`, the supervisor prints each line with the program's name as a prefix.
        """
        self._output: TextIO | None = output or sys.stdout
        self._record = record
        self._children: list[_Child] = []
        self._selector = selectors.DefaultSelector()
        self._signals = 0

    def install_signal_handlers(self) -> None:
        """Handle SIGINT, SIGTERM and SIGHUP. A first signal stops all programs, and a second signal kills them."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._count_signal)

    def start(self, program: Program, *, restart: bool = True) -> None:
        """Start a program, and restart it each time it ends unless `restart` is False."""
        child = _Child(program, spawn(program), time.monotonic(), restart)
        self._children.append(child)
        self._register_output(child)

    def run_to_end(self, program: Program, *, timeout_seconds: float) -> None:
        """Run a program once. Raises ProgramFailed if it fails or exceeds the timeout."""
        self.start(program, restart=False)
        child = self._children[-1]
        self.run_until(lambda: child.drained, what=program.name, timeout_seconds=timeout_seconds)
        self._children.remove(child)
        if child.process.returncode != 0:
            raise ProgramFailed(f"{program.name} failed with {_describe(child.process.returncode)}")

    def run_until(self, condition: Callable[[], bool], *, what: str, timeout_seconds: float) -> None:
        """Supervise the programs until the condition holds.

        Raises Interrupted at a stop signal, and ProgramFailed at the timeout or if a program fails four times.
        """
        deadline = time.monotonic() + timeout_seconds
        while not condition():
            self._tick()
            # Fail after a few attempts during the start, because endless restarts would hide a wrong setting.
            failing = [child.program.name for child in self._children if child.failures >= FAILURES_AT_START]
            if failing:
                raise ProgramFailed(f"{', '.join(failing)} cannot start; see the log lines above")
            if time.monotonic() > deadline:
                raise ProgramFailed(f"{what}: not ready after {timeout_seconds:.0f} seconds")

    def is_steady(self) -> bool:
        """Return whether every program has been running for at least a second."""
        latest_start = time.monotonic() - STEADY_SECONDS
        return all(
            child.process.poll() is None and child.started_at < latest_start for child in self._children
        )

    def run(self) -> NoReturn:
        """Supervise the programs until a stop signal, then raise Interrupted."""
        while True:
            self._tick()

    def stop_all(self) -> None:
        """Stop all programs, highest stage first. Kill programs that do not end within their stop time."""
        for stage in sorted({child.program.stage for child in self._children}, reverse=True):
            self._stop_stage([child for child in self._children if child.program.stage == stage])
        self._children.clear()

    def log(self, text: str, *, name: str = "quartermaster") -> None:
        """Print a line that begins with a name."""
        self._print(f"{name:<{NAME_WIDTH}}| {text}\n")

    def print_line(self, text: str) -> None:
        """Print a line without a prefix."""
        self._print(f"{text}\n")

    def _tick(self) -> None:
        if self._signals:
            raise Interrupted
        self._read_outputs()
        now = time.monotonic()
        for child in self._children:
            self._update(child, now)

    def _update(self, child: _Child, now: float) -> None:
        if child.restart_at is not None:
            if now >= child.restart_at:
                self._restart(child)
        elif child.process.poll() is not None and not child.drained:
            self._handle_exit(child, now)

    def _handle_exit(self, child: _Child, now: float) -> None:
        self._drain(child)
        kill(child.process)  # kill other processes of the program's session
        if not child.restart:
            return
        # Set 1 and not 0 after a long run: this failure counts, and further failures must increase the delay.
        child.failures = 1 if now - child.started_at > BACKOFF_RESET_SECONDS else child.failures + 1
        delay = backoff_seconds(child.failures, first=FIRST_RESTART_SECONDS, longest=SLOWEST_RESTART_SECONDS)
        child.restart_at = now + delay
        ended = _describe(child.process.returncode)
        self.log(f"{child.program.name} ended with {ended}; restarting it in {delay:.2f} s")

    def _restart(self, child: _Child) -> None:
        try:
            child.process = spawn(child.program)
        except Exception as error:  # noqa: BLE001 - a program's preparation may raise any error; it is retried
            self.log(
                f"{child.program.name} cannot be started: {error}; retrying in {SLOWEST_RESTART_SECONDS:.0f} s"
            )
            child.restart_at = time.monotonic() + SLOWEST_RESTART_SECONDS
            return
        child.started_at, child.restart_at, child.drained, child.partial = time.monotonic(), None, False, b""
        self._register_output(child)

    def _stop_stage(self, children: list[_Child]) -> None:
        running = [child for child in children if child.process.poll() is None]
        for child in running:
            child.process.send_signal(child.program.stop_signal)
        deadline = time.monotonic() + max((child.program.stop_seconds for child in running), default=0)
        signals_before = self._signals
        while any(child.process.poll() is None for child in running):
            # Stop waiting if a signal arrives during the stop: a second signal means that the user does not wait.
            if time.monotonic() > deadline or self._signals > signals_before:
                break
            self._read_outputs()
        for child in children:
            if child.process.poll() is None:
                self.log(f"{child.program.name} did not stop in time; killing it")
            kill(child.process)
            self._drain(child)

    def _register_output(self, child: _Child) -> None:
        if child.process.stdout is not None:
            # Disable blocking reads, because one thread serves all programs.
            os.set_blocking(child.process.stdout.fileno(), False)
            self._selector.register(child.process.stdout, selectors.EVENT_READ, child)

    def _read_outputs(self) -> None:
        if not self._selector.get_map():
            time.sleep(TICK_SECONDS)
            return
        for key, _ in self._selector.select(TICK_SECONDS):
            self._read(key.data)

    def _read(self, child: _Child) -> bool:
        """Print the new output of a child. Return whether more output may be available."""
        stream = child.process.stdout
        if stream is None or stream.closed:
            return False
        try:
            chunk = os.read(stream.fileno(), LINE_LIMIT_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            self._selector.unregister(stream)
            stream.close()
            return False
        *lines, child.partial = (child.partial + chunk).split(b"\n")
        # Print a long line in pieces, so that an endless line does not fill the memory.
        if len(child.partial) >= LINE_LIMIT_BYTES:
            lines, child.partial = [*lines, child.partial], b""
        self._show(child, lines)
        return True

    def _drain(self, child: _Child) -> None:
        while self._read(child):
            pass
        stream = child.process.stdout
        if stream is not None and not stream.closed:
            self._selector.unregister(stream)
            stream.close()
        self._show(child, [child.partial] if child.partial else [])
        child.partial, child.drained = b"", True

    def _show(self, child: _Child, lines: Iterable[bytes]) -> None:
        for line in lines:
            written = line.decode(errors="replace").rstrip()
            if self._record is None:
                self.log(written, name=child.program.name)
            else:
                self._record(child.program.name, written)

    def _print(self, text: str) -> None:
        if self._output is None:
            return
        try:
            self._output.write(text)
            self._output.flush()
        except BrokenPipeError:  # the reader of the output has ended; the programs continue without output
            self._output = None
        except OSError:
            pass  # for example, the disk is full: lose only this line

    def _count_signal(self, _number: int, _frame: FrameType | None) -> None:
        # Only count the signal: an exception here could interrupt spawn() and leave a child that no code stops.
        self._signals += 1


def _describe(returncode: int) -> str:
    return f"signal {signal.Signals(-returncode).name}" if returncode < 0 else f"status {returncode}"
