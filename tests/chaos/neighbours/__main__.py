"""Measure an honest tenant alone and beside a hostile neighbour, pool by pool; the status is 1 if it was kept waiting.

`python -m tests.chaos.neighbours --seconds 5 --only uploads turns`; `--unfair` switches the shares of pools off, with
which the run must fail.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import requests

from tests.chaos.neighbours.measuring import Measured, find_delay, find_failures, measure
from tests.chaos.neighbours.stage import open_stage
from tests.chaos.neighbours.trials import TRIALS, Scene, Trial
from tests.support.stack import Servers

SETTLING_SECONDS = 2.0
"""For an attack to take all it can get, and for what it took to be given back."""
RECOVERY_SECONDS = 60.0
ATTEMPTS = 3
"""A trial in which requests were late, and none failed, counts when they are late each time."""


def main() -> int:
    """Read the arguments, run the trials, report."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.neighbours", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="how long each is measured beside its neighbour"
    )
    parser.add_argument("--only", choices=TRIALS, nargs="+", help="some pools, instead of all")
    parser.add_argument("--unfair", action="store_true", help="switch the shares of pools off")
    parser.add_argument(
        "--patience", type=float, default=60.0, help="how long an honest request waits, in seconds"
    )
    options = parser.parse_args()
    began = time.monotonic()
    violations = 0
    with tempfile.TemporaryDirectory(prefix="quartermaster-neighbours-") as directory:
        servers = Servers(Path(directory) / "servers")
        servers.start()
        try:
            stage = open_stage(
                Path(directory) / "stack",
                servers,
                is_fair=not options.unfair,
                patience_seconds=options.patience,
            )
            with stage as scene:
                for name in options.only or TRIALS:
                    violations += _run(name, TRIALS[name], scene, options.seconds)
        finally:
            servers.stop()
    print(f"neighbours: {violations} violations in {time.monotonic() - began:.0f} s")
    return 1 if violations else 0


def _run(name: str, trial: Trial, scene: Scene, seconds: float) -> int:
    """Run a trial; one whose requests were only late is run again, as anything else on the machine may delay them."""
    ask = partial(trial.ask, scene)
    violations: list[str] = []
    for _ in range(ATTEMPTS):
        if not _recovers(ask):
            print(f"{name}: not served a minute after the last crowd went", flush=True)
            return 1
        quiet, beside = _measure(name, trial, scene, seconds)
        failures = find_failures(quiet, beside)
        violations = [*failures, *find_delay(quiet, beside)]
        for violation in violations:
            print(f"  {violation}", flush=True)
        if failures or not violations:
            break
    return len(violations)


def _measure(name: str, trial: Trial, scene: Scene, seconds: float) -> tuple[Measured, Measured]:
    """Measure the victim alone, and beside the crowd."""
    ask = partial(trial.ask, scene)
    quiet = measure(ask, max(1.0, seconds / 2))
    with trial.attack(scene) as crowd:
        time.sleep(SETTLING_SECONDS)
        beside = measure(ask, seconds)
        answers = f"; the crowd heard {dict(crowd.answers.most_common())}" if crowd is not None else ""
    time.sleep(SETTLING_SECONDS)
    print(f"{name}: alone {_shown(quiet)}; beside a crowd {_shown(beside)}{answers}", flush=True)
    return quiet, beside


def _shown(measured: Measured) -> str:
    p50, p99 = measured.p50 * 1000, measured.p99 * 1000
    return f"p50 {p50:.0f}, p99 {p99:.0f} ms ({len(measured.seconds)})"


def _recovers(ask: Callable[[], None]) -> bool:
    """Ask until it succeeds: what a crowd has queued elsewhere may take a moment to be dropped."""
    give_up_at = time.monotonic() + RECOVERY_SECONDS
    while time.monotonic() < give_up_at:
        try:
            ask()
        except (AssertionError, requests.RequestException):
            time.sleep(0.1)
        else:
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())
