"""The local store's protocol, while workers are killed and paused at random points."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_committed_is_lost_and_nothing_uncommitted_stays(tmp_path: Path, seed: int) -> None:
    root = Path(__file__).parents[4]
    command = [sys.executable, "-m", "tests.contracts.crash_trial", str(tmp_path), "4", str(seed)]

    tally = json.loads(subprocess.run(command, check=True, capture_output=True, cwd=root).stdout)

    assert tally["violations"] == []
    assert tally["kills"] > 20
    assert tally["on_disk"] == tally["kept"] > 0
