"""The comparison at the end of chaos bites: with rules broken it reports what each of them led to, and fails."""

from __future__ import annotations

import subprocess
import sys

from tests.support.stack import ROOT

BROKEN = {
    "serve-the-ended": "was served after its end",
    "drop-charges": "was answered as",
    "store-again": "imported media that no import made, or more than one",
}


def test_chaos_notices_every_broken_rule() -> None:
    arguments = ["--calm", "--seconds", "4", "--only", "files", "models", "media", "--sabotage", *BROKEN]
    command = [sys.executable, "-m", "tests.chaos", *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=110)
    assert run.returncode == 1, run.stdout + run.stderr
    assert [sign for sign in BROKEN.values() if sign not in run.stdout] == [], run.stdout


def test_the_neighbour_suite_notices_that_shares_are_switched_off() -> None:
    arguments = ["--unfair", "--seconds", "1", "--patience", "3", "--only", "uploads", "turns"]
    command = [sys.executable, "-m", "tests.chaos.neighbours", *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=110)
    assert run.returncode == 1, run.stdout + run.stderr
    for pool in ("uploads", "turns"):
        assert f"{pool}: alone" in run.stdout, run.stdout + run.stderr
    assert run.stdout.count(" failed, as: ") == 2, run.stdout
