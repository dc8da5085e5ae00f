"""The comparison at the end of chaos bites: with rules broken it reports what each of them led to, and fails."""

import subprocess
import sys

import pytest

from tests.support.stack import ROOT

BROKEN = {
    # What has ended is asked for last of all: either its bytes come, or they are missed because they are removed.
    "serve-the-ended": ("was served after its end", '"code": "blob_missing"'),
    "drop-charges": ("was answered as",),
    "store-again": ("imported media that no import made, or more than one",),
}
ENOUGH = ("delete=3", "completed=8", "attachment=20")
"""Nine of ten charges and imports go wrong, so that not one of so many does not happen."""


@pytest.mark.timeout(240)
def test_chaos_notices_every_broken_rule() -> None:
    arguments = ["--calm", "--seconds", "60", "--until", *ENOUGH, "--only", "files", "models", "media"]
    command = [sys.executable, "-m", "tests.chaos", *arguments, "--sabotage", *BROKEN]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=220)
    assert run.returncode == 1, run.stdout + run.stderr
    for rule, signs in BROKEN.items():
        assert any(sign in run.stdout for sign in signs), f"{rule} is not noticed: {run.stdout}"


@pytest.mark.timeout(240)
def test_the_neighbour_suite_notices_that_shares_are_switched_off() -> None:
    arguments = ["--unfair", "--seconds", "1", "--patience", "3", "--only", "uploads", "turns"]
    command = [sys.executable, "-m", "tests.chaos.neighbours", *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=220)
    assert run.returncode == 1, run.stdout + run.stderr
    for pool in ("uploads", "turns"):
        assert f"{pool}: alone" in run.stdout, run.stdout + run.stderr
    assert run.stdout.count(" failed, as: ") == 2, run.stdout
