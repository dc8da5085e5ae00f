"""A process with a clock of its own uses it everywhere, and follows its changes; waiting is not affected."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.support.processes.stack import ROOT
from tests.support.processes.wrong_clock import WrongClock, with_wrong_clock

YEAR_SECONDS = 365 * 24 * 3600
TELLS_THE_TIME = """
import datetime, json, os, sys, threading, time

for _ in sys.stdin:
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, str(time.time()).encode())
        os._exit(0)
    os.wait()
    threading.Event().wait(0.01)
    clocks = [time.time(), time.time_ns() / 1e9, datetime.datetime.now().timestamp(), float(os.read(reading, 99))]
    print(json.dumps([*clocks, time.monotonic()]), flush=True)
"""


def test_process_follows_its_own_clock_and_its_changes(tmp_path: Path) -> None:
    (tmp_path / "tells_the_time.py").write_text(TELLS_THE_TIME)
    clock = WrongClock(tmp_path / "clock", seconds=YEAR_SECONDS)
    with subprocess.Popen(
        with_wrong_clock([sys.executable, "-m", "tells_the_time"]),
        env=os.environ | clock.settings | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert years_apart(process) == [1, 1, 1, 1, 0]
        clock.set(-YEAR_SECONDS)
        assert years_apart(process) == [-1, -1, -1, -1, 0]
        clock.set(0)
        assert years_apart(process) == [0, 0, 0, 0, 0]
        assert process.stdin is not None
        process.stdin.close()
    assert process.returncode == 0


def years_apart(process: subprocess.Popen[str]) -> list[int]:
    """Return the years by which each way to read the time differs from the right time, as the process sees it."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    *clocks, monotonic = json.loads(process.stdout.readline())
    apart = [*(each - time.time() for each in clocks), monotonic - time.monotonic()]
    return [round(seconds / YEAR_SECONDS) for seconds in apart]
