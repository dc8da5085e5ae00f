"""Measure the product against its yardsticks: `python -m tests.benchmarks [--quick] [ROW …]`.

Every figure is measured in the same run, on the same machine and in turn with its yardstick, as the median of several
runs. A FAIL verdict does not change the exit code, which is 1 only if a row broke or the run was interrupted. Results
are printed as one table, and written as JSON and as an SVG chart. An interrupted run reports everything that it
measured.
"""

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.benchmarks.admission import admission
from tests.benchmarks.agents import agents
from tests.benchmarks.credits import hot_organization
from tests.benchmarks.downloads import large_downloads
from tests.benchmarks.growth import growth
from tests.benchmarks.media import media
from tests.benchmarks.models.calls import models
from tests.benchmarks.models.crowds import crowds
from tests.benchmarks.models.growth import calls_growth
from tests.benchmarks.models.queue import model_queue
from tests.benchmarks.neighbours import neighbours
from tests.benchmarks.round_trips import queue
from tests.benchmarks.routing import routing
from tests.benchmarks.runner.product import Bench
from tests.benchmarks.runner.report import Line
from tests.benchmarks.runner.results import report
from tests.benchmarks.runner.runs import run_rows
from tests.benchmarks.storage import storage
from tests.benchmarks.sweeps import sweeping
from tests.benchmarks.takeovers import takeovers
from tests.benchmarks.uploads import large_uploads, small_uploads, upload_latency, upload_memory
from tests.benchmarks.usage import usage_windows

ROWS: dict[str, Callable[[Bench], Iterator[Line]]] = {
    "models": models,
    "calls": calls_growth,
    "crowds": crowds,
    "neighbours": neighbours,
    "agents": agents,
    "routing": routing,
    "takeover": takeovers,
    "media": media,
    "upload": large_uploads,
    "memory": upload_memory,
    "small-uploads": small_uploads,
    "download": large_downloads,
    "latency": upload_latency,
    "sweep": sweeping,
    "growth": growth,
    "credits": hot_organization,
    "usage": usage_windows,
    "queue": queue,
    "admission": admission,
    "model-queue": model_queue,
    "storage": storage,
}
ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "build" / "benchmark-peers"
RESULTS = ROOT / "dist" / "benchmarks"


def main() -> int:
    """Run the selected rows, by default all. The exit code is 1 if one broke or the run was interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer runs (some minutes)")
    parser.add_argument("--directory", type=Path, help="the working folder, on the disk to be measured")
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="the folder for results.json and results.svg"
    )
    options = parser.parse_args()
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    directory = Path(tempfile.mkdtemp(prefix="qm-bench-", dir=options.directory))
    bench = Bench(directory, PEERS, quick=options.quick)
    # Report what was measured after SIGTERM too, and after SIGINT where a shell ignores it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    measured = run_rows({name: ROWS[name] for name in options.rows or ROWS}, bench)
    report(measured, options.results, is_quick=options.quick)
    bench.close()
    if any(each.failure for each in measured):
        print(f"The logs of the run that broke are in {directory}", file=sys.stderr)
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
