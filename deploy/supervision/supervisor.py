"""Keep programs running: start them, show their output under their names, restart what dies, stop all in order.

One thread and one loop, so that every program is a child of the main thread (see `processes`) and nothing needs a
lock. A program that keeps dying is restarted ever more slowly and never given up, except while starting.
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
SETTLED_SECONDS = 10.0  # a program that ran this long starts anew with the first delay
STEADY_SECONDS = 1.0
FAILURES_AT_START = 4
LINE_LIMIT_BYTES = 64 * 1024
NAME_WIDTH = 18


class Interrupted(Exception):
    """The supervisor was asked to stop."""


class GaveUp(Exception):
    """What was waited for did not come about; the message says what."""


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
    """A set of running programs."""

    def __init__(
        self, *, output: TextIO | None = None, record: Callable[[str, str], None] | None = None
    ) -> None:
        """Give what programs write to `record` with their names; without it, print it under them."""
        self._output: TextIO | None = output or sys.stdout
        self._record = record
        self._children: list[_Child] = []
        self._selector = selectors.DefaultSelector()
        self._signals = 0

    def listen(self) -> None:
        """Stop at SIGINT, SIGTERM or SIGHUP; a second one kills what still runs."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._note_signal)

    def start(self, program: Program, *, restart: bool = True) -> None:
        """Start a program; unless told otherwise it is started again whenever it ends."""
        child = _Child(program, spawn(program), time.monotonic(), restart)
        self._children.append(child)
        self._watch(child)

    def run_to_end(self, program: Program, *, timeout_seconds: float) -> None:
        """Run a program once; raises `GaveUp` unless it succeeds in time."""
        self.start(program, restart=False)
        child = self._children[-1]
        self.run_until(lambda: child.drained, what=program.name, timeout_seconds=timeout_seconds)
        self._children.remove(child)
        if child.process.returncode != 0:
            raise GaveUp(f"{program.name} failed with {_describe(child.process.returncode)}")

    def run_until(self, condition: Callable[[], bool], *, what: str, timeout_seconds: float) -> None:
        """Supervise until the condition holds; raises `Interrupted`, or `GaveUp` if it cannot or does not in time."""
        deadline = time.monotonic() + timeout_seconds
        while not condition():
            self._tick()
            failing = [child.program.name for child in self._children if child.failures >= FAILURES_AT_START]
            if failing:
                raise GaveUp(f"{', '.join(failing)} cannot start; see the lines above")
            if time.monotonic() > deadline:
                raise GaveUp(f"{what}: not done after {timeout_seconds:.0f} seconds")

    def is_steady(self) -> bool:
        """Tell whether every program runs, and has for a moment."""
        began_before = time.monotonic() - STEADY_SECONDS
        return all(
            child.process.poll() is None and child.started_at < began_before for child in self._children
        )

    def run(self) -> NoReturn:
        """Supervise until asked to stop; raises `Interrupted` then."""
        while True:
            self._tick()

    def stop_all(self) -> None:
        """Stop every program, the highest stage first; one that outlasts its grace is killed."""
        for stage in sorted({child.program.stage for child in self._children}, reverse=True):
            self._stop_stage([child for child in self._children if child.program.stage == stage])
        self._children.clear()

    def say(self, text: str, *, name: str = "quartermaster") -> None:
        """Print a line under a name."""
        self._print(f"{name:<{NAME_WIDTH}}| {text}\n")

    def announce(self, text: str) -> None:
        """Print a line as it stands."""
        self._print(f"{text}\n")

    def _tick(self) -> None:
        if self._signals:
            raise Interrupted
        self._pump()
        now = time.monotonic()
        for child in self._children:
            self._tend(child, now)

    def _tend(self, child: _Child, now: float) -> None:
        if child.restart_at is not None:
            if now >= child.restart_at:
                self._start_again(child)
        elif child.process.poll() is not None and not child.drained:
            self._note_end(child, now)

    def _note_end(self, child: _Child, now: float) -> None:
        self._drain(child)
        kill(child.process)  # the rest of its session
        if not child.restart:
            return
        child.failures = 1 if now - child.started_at > SETTLED_SECONDS else child.failures + 1
        delay = backoff_seconds(child.failures, first=FIRST_RESTART_SECONDS, longest=SLOWEST_RESTART_SECONDS)
        child.restart_at = now + delay
        ended = _describe(child.process.returncode)
        self.say(f"{child.program.name} ended with {ended}; starting it again in {delay:.2f} s")

    def _start_again(self, child: _Child) -> None:
        try:
            child.process = spawn(child.program)
        except Exception as error:  # noqa: BLE001 - a program's preparation may fail in any way; it is tried again
            self.say(f"{child.program.name} could not be started: {error}")
            child.restart_at = time.monotonic() + SLOWEST_RESTART_SECONDS
            return
        child.started_at, child.restart_at, child.drained, child.partial = time.monotonic(), None, False, b""
        self._watch(child)

    def _stop_stage(self, children: list[_Child]) -> None:
        running = [child for child in children if child.process.poll() is None]
        for child in running:
            child.process.send_signal(child.program.stop_signal)
        deadline = time.monotonic() + max((child.program.stop_seconds for child in running), default=0)
        asked = self._signals
        while any(child.process.poll() is None for child in running):
            if time.monotonic() > deadline or self._signals > asked:
                break
            self._pump()
        for child in children:
            if child.process.poll() is None:
                self.say(f"{child.program.name} did not stop in time; killing it")
            kill(child.process)
            self._drain(child)

    def _watch(self, child: _Child) -> None:
        if child.process.stdout is not None:
            os.set_blocking(child.process.stdout.fileno(), False)
            self._selector.register(child.process.stdout, selectors.EVENT_READ, child)

    def _pump(self) -> None:
        if not self._selector.get_map():
            time.sleep(TICK_SECONDS)
            return
        for key, _ in self._selector.select(TICK_SECONDS):
            self._read(key.data)

    def _read(self, child: _Child) -> bool:
        """Show what the child has written; tell whether there may be more."""
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
                self.say(written, name=child.program.name)
            else:
                self._record(child.program.name, written)

    def _print(self, text: str) -> None:
        if self._output is None:
            return
        try:
            self._output.write(text)
            self._output.flush()
        except BrokenPipeError:  # nobody reads any more; the programs run on
            self._output = None
        except OSError:
            pass  # a full disk, say: this line is lost, later ones may not be

    def _note_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1


def _describe(returncode: int) -> str:
    return f"signal {signal.Signals(-returncode).name}" if returncode < 0 else f"status {returncode}"
