"""The rows about neighbors: a tenant's p99 beside another tenant at ten times each pool, and alone.

They are the trials of `tests/chaos/neighbours`, which fail if a victim waits too long. Pools are small there, so that
one machine can fill them.
"""

from collections.abc import Iterator, Sequence

from tests.benchmarks.runner.product import Bench
from tests.benchmarks.runner.report import Line, milliseconds
from tests.chaos.neighbours.comparison import Comparison, compare, recovers
from tests.chaos.neighbours.measurement import allowed_seconds
from tests.chaos.neighbours.stage import open_stage
from tests.chaos.neighbours.trials import TIMES, TRIALS, Scene

SOME = ("uploads", "calls", "turns")
PATIENCE_SECONDS = 60.0


def neighbours(bench: Bench) -> Iterator[Line]:
    """Measure the victim of every pool; the quick form measures a few."""
    directory = bench.directory / "neighbours"
    with open_stage(directory, bench.servers, is_fair=True, max_wait_seconds=PATIENCE_SECONDS) as scene:
        for name in SOME if bench.quick else TRIALS:
            yield _line(name, list(_compare(bench, scene, name)))


def _compare(bench: Bench, scene: Scene, name: str) -> Iterator[Comparison]:
    for _ in range(bench.scaled(3, 1)):
        if not recovers(TRIALS[name], scene):
            raise AssertionError(f"{name}: not served a minute after the last crowd went")
        yield compare(TRIALS[name], scene, bench.scaled(4, 2))


def _line(name: str, runs: Sequence[Comparison]) -> Line:
    """Return the line of the median run, by the delay of its requests."""
    middle = sorted(runs, key=lambda run: run.beside.p99 - allowed_seconds(run.quiet))[len(runs) // 2]
    failed = sum(len(run.quiet.failures) + len(run.beside.failures) for run in runs)
    return Line(
        what=f"victim's p99 beside a tenant at {TIMES} times the pool: {name}",
        figure=milliseconds(middle.beside.p99) + (f", {failed} requests failed" if failed else ""),
        yardstick=f"alone {milliseconds(middle.quiet.p99)}",
        ratio=middle.beside.p99 / middle.quiet.p99,
        target="≤ 2 × alone + 250 ms",  # noqa: RUF001
        met=not failed and middle.beside.p99 <= allowed_seconds(middle.quiet),
    )
