"""The supervisor restarts programs that end, stops them in order, and leaves no process."""

import io
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from deploy.supervision.child_processes import Program
from deploy.supervision.supervisor import ProgramFailed, Supervisor

PATIENCE_SECONDS = 60


def python(name: str, code: str, *, stop_seconds: float = 5.0, stage: int = 0) -> Program:
    command = (sys.executable, "-u", "-c", textwrap.dedent(code))
    return Program(name=name, command=command, stop_seconds=stop_seconds, stage=stage)


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def test_a_program_that_is_killed_is_started_again() -> None:
    output = io.StringIO()
    supervisor = Supervisor(output=output)
    supervisor.start(python("sleeper", "import os, time; print('pid', os.getpid()); time.sleep(60)"))
    try:
        supervisor.run_until(
            lambda: "pid" in output.getvalue(), what="start", timeout_seconds=PATIENCE_SECONDS
        )
        os.kill(int(output.getvalue().split()[-1]), signal.SIGKILL)
        supervisor.run_until(
            lambda: output.getvalue().count("pid") == 2, what="restart", timeout_seconds=PATIENCE_SECONDS
        )
        assert "sleeper ended with signal SIGKILL; restarting it" in output.getvalue()
    finally:
        supervisor.stop_all()


def test_output_is_shown_under_the_programs_name_including_an_unfinished_last_line() -> None:
    output = io.StringIO()
    supervisor = Supervisor(output=output)
    talker = python("talker", "import sys; print('one'); sys.stderr.write('two')")
    supervisor.run_to_end(talker, timeout_seconds=PATIENCE_SECONDS)
    assert sorted(output.getvalue().splitlines()) == [f"{'talker':<18}| one", f"{'talker':<18}| two"]


def test_a_program_run_once_must_succeed() -> None:
    supervisor = Supervisor(output=io.StringIO())
    with pytest.raises(ProgramFailed, match="release failed with status 3"):
        supervisor.run_to_end(python("release", "raise SystemExit(3)"), timeout_seconds=PATIENCE_SECONDS)


def test_a_program_that_keeps_failing_at_the_start_ends_the_start() -> None:
    supervisor = Supervisor(output=io.StringIO())
    supervisor.start(python("broken", "raise SystemExit(1)"))
    with pytest.raises(ProgramFailed, match="broken cannot start"):
        supervisor.run_until(lambda: False, what="never", timeout_seconds=PATIENCE_SECONDS)
    supervisor.stop_all()


def test_a_command_that_does_not_exist_is_named() -> None:
    output = io.StringIO()
    supervisor = Supervisor(output=output)
    with pytest.raises(ProgramFailed):
        supervisor.run_to_end(
            Program(name="typo", command=("no-such-command",)), timeout_seconds=PATIENCE_SECONDS
        )
    assert "no-such-command: No such file or directory" in output.getvalue()


def test_higher_stages_are_stopped_first() -> None:
    output = io.StringIO()
    supervisor = Supervisor(output=output)
    code = """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("stopped")))
        print("started")
        time.sleep(60)
    """
    for name, stage in (("web", 2), ("database", 0), ("worker", 1)):
        supervisor.start(python(name, code, stage=stage))
    supervisor.run_until(
        lambda: output.getvalue().count("started") == 3, what="start", timeout_seconds=PATIENCE_SECONDS
    )
    supervisor.stop_all()
    stopped = [line.split()[0] for line in output.getvalue().splitlines() if line.endswith("stopped")]
    assert stopped == ["web", "worker", "database"]


def test_a_program_that_ignores_the_signal_is_killed_with_its_children() -> None:
    output = io.StringIO()
    supervisor = Supervisor(output=output)
    stubborn = """
        import signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        print("pids", child.pid)
        time.sleep(60)
    """
    supervisor.start(python("stubborn", stubborn, stop_seconds=0.2))
    supervisor.run_until(lambda: "pids" in output.getvalue(), what="start", timeout_seconds=PATIENCE_SECONDS)
    child = int(output.getvalue().split()[-1])
    supervisor.stop_all()
    assert eventually(lambda: not is_running(child))
    assert "stubborn did not stop in time" in output.getvalue()


def test_nothing_outlives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    code = f"""
        import sys
        from deploy.supervision.child_processes import Program
        from deploy.supervision.supervisor import Supervisor
        supervisor = Supervisor()
        sleeper = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(60)"
        supervisor.start(Program(name="sleeper", command=({sys.executable!r}, "-c", sleeper)))
        supervisor.run()
    """
    command = [sys.executable, "-u", "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        sleeper = int(supervisor.stdout.readline().split()[-1])
        assert is_running(sleeper)
        supervisor.kill()
    assert eventually(lambda: not is_running(sleeper))
