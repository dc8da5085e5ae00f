"""The comparison at the end of chaos bites: with a rule broken it reports violations and fails."""

from __future__ import annotations

import subprocess
import sys

from tests.support.stack import ROOT


def test_chaos_fails_when_rows_go_before_their_bytes() -> None:
    command = [sys.executable, "-m", "tests.chaos", "--seconds", "6", "--sabotage", "rows-before-unlink"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=110)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "leaked bytes" in run.stdout
