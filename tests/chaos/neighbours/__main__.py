"""Measure an honest tenant alone and beside a hostile neighbor, for each pool; exit with 1 if it was slowed down.

`python -m tests.chaos.neighbours --seconds 5 --only uploads turns`. With `--unfair` the pools ignore shares, and the
run must fail.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.neighbours.comparison import Comparison, compare, recovers
from tests.chaos.neighbours.measurement import find_delay, find_failures
from tests.chaos.neighbours.stage import open_stage
from tests.chaos.neighbours.trials import TRIALS, Scene, Trial
from tests.support.processes.stack import Servers

ATTEMPTS = 3
"""A trial in which requests were late, and none failed, counts when they are late each time."""


def main() -> int:
    """Parse the arguments, run the trials, print the report, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.neighbours", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="seconds of each measurement beside the crowd"
    )
    parser.add_argument("--only", choices=TRIALS, nargs="+", help="some pools, instead of all")
    parser.add_argument("--unfair", action="store_true", help="switch the shares of pools off")
    parser.add_argument("--timeout-seconds", type=float, default=60.0, help="timeout of an honest request")
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
                max_wait_seconds=options.timeout_seconds,
            )
            with stage as scene:
                for name in options.only or TRIALS:
                    violations += _run(name, TRIALS[name], scene, options.seconds)
        finally:
            servers.stop()
    print(f"neighbours: {violations} violations in {time.monotonic() - began:.0f} s")
    return 1 if violations else 0


def _run(name: str, trial: Trial, scene: Scene, seconds: float) -> int:
    """Run a trial. If requests were only late, run it again, because other load on the machine may delay them."""
    violations: list[str] = []
    for _ in range(ATTEMPTS):
        if not recovers(trial, scene):
            print(f"{name}: not served a minute after the last crowd went", flush=True)
            return 1
        compared = compare(trial, scene, seconds)
        print(f"{name}: {_shown(compared)}", flush=True)
        failures = find_failures(compared.quiet, compared.beside)
        violations = [*failures, *find_delay(compared.quiet, compared.beside)]
        for violation in violations:
            print(f"  {violation}", flush=True)
        if failures or not violations:
            break
    return len(violations)


def _shown(compared: Comparison) -> str:
    alone, beside = (
        f"p50 {each.p50 * 1000:.0f}, p99 {each.p99 * 1000:.0f} ms ({len(each.seconds)})"
        for each in (compared.quiet, compared.beside)
    )
    heard = f"; the crowd heard {dict(compared.answers.most_common())}" if compared.answers else ""
    return f"alone {alone}; beside a crowd {beside}{heard}"


if __name__ == "__main__":
    sys.exit(main())
