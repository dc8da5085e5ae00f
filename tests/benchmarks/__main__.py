"""Measure the product against its yardsticks: `python -m tests.benchmarks [--quick] [ROW …]`.

Every figure is taken in the same run on the same machine as its yardstick's, in turn, as the median of several runs.
A verdict that reads FAIL changes nothing; the exit code is that of a run that broke. Results are printed as one table,
and written as JSON and as an SVG chart; of a run that broke, those that it had.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.benchmarks.admission import admission
from tests.benchmarks.agents import agents
from tests.benchmarks.credits import hot_organization
from tests.benchmarks.downloads import large_downloads
from tests.benchmarks.growth import growth
from tests.benchmarks.media import media
from tests.benchmarks.model_queue import model_queue
from tests.benchmarks.models import models
from tests.benchmarks.models_growth import calls_growth
from tests.benchmarks.product import Bench
from tests.benchmarks.report import Line, Measured
from tests.benchmarks.results import report
from tests.benchmarks.round_trips import queue
from tests.benchmarks.routing import routing
from tests.benchmarks.storage import storage
from tests.benchmarks.sweeps import sweeping
from tests.benchmarks.uploads import (
    large_uploads,
    small_uploads,
    upload_latency,
    upload_memory,
)
from tests.benchmarks.usage import usage_windows

ROWS: dict[str, Callable[[Bench], Iterator[Line]]] = {
    "admission": admission,
    "upload": large_uploads,
    "memory": upload_memory,
    "small-uploads": small_uploads,
    "latency": upload_latency,
    "queue": queue,
    "download": large_downloads,
    "sweep": sweeping,
    "growth": growth,
    "media": media,
    "models": models,
    "model-queue": model_queue,
    "calls": calls_growth,
    "credits": hot_organization,
    "usage": usage_windows,
    "storage": storage,
    "agents": agents,
    "routing": routing,
}
ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "build" / "benchmark-peers"
RESULTS = ROOT / "dist" / "benchmarks"


def main() -> None:
    """Run the rows asked for, all by default."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer runs: a minute or so")
    parser.add_argument("--directory", type=Path, help="where to work: on the disk to be measured")
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="where to write results.json and results.svg"
    )
    options = parser.parse_args()
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    directory = Path(tempfile.mkdtemp(prefix="qm-bench-", dir=options.directory))
    bench = Bench(directory, PEERS, quick=options.quick)
    measured: list[Measured] = []
    try:
        for name in options.rows or ROWS:
            print(f"measuring {name}", file=sys.stderr, flush=True)
            started_at = time.monotonic()
            lines = list(ROWS[name](bench))
            measured.append(Measured(row=name, seconds=time.monotonic() - started_at, lines=lines))
    except BaseException:
        print(f"The logs of the run that broke are in {directory}", file=sys.stderr)
        raise
    finally:
        bench.close()
        report(measured, options.results, is_quick=options.quick)
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
