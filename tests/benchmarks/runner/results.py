"""Write the results of a run: a table on standard output, and a JSON document and a chart as files."""

from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.runner.chart import chart
from tests.benchmarks.runner.report import Measured, document, table


def report(measured: Sequence[Measured], results: Path, *, is_quick: bool) -> None:
    """Print the results, and write them."""
    print(table(measured))
    print(f"\nmeasured in {sum(each.seconds for each in measured) / 60:.1f} minutes")
    results.mkdir(parents=True, exist_ok=True)
    (results / "results.json").write_text(document(measured, is_quick=is_quick))
    (results / "results.svg").write_text(chart(measured))
    print(f"\n{results / 'results.json'}\n{results / 'results.svg'}", flush=True)
