"""The output of a run: one table, the same as JSON, and a chart of both."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.benchmarks.runner.measurements import Sample
from tests.benchmarks.runner.report import Measured, at_least, cpu_per, flat, missing
from tests.benchmarks.runner.results import report

CPU = cpu_per(Sample(seconds=1.0, cpu_by_part={"web": 0.3, "postgres": 0.1}), 100, "call")
MEASURED = [
    Measured(
        row="models",
        seconds=2.0,
        lines=[
            at_least("calls <16>", "200/s", "100/s", ratio=2.0, minimum=5, cpu=CPU),
            missing("p99", "LiteLLM"),
        ],
    ),
    Measured(row="growth", seconds=1.0, lines=[flat("reads", "1 ms", "1 ms", ratio=1.0, cpu="2 ms")]),
]


def test_a_run_prints_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(MEASURED, tmp_path / "results", is_quick=True)
    heading, *rows = capsys.readouterr().out.partition("\n\n")[0].splitlines()
    assert heading.split()[:2] == ["row", "what"]
    assert [row.split()[0] for row in rows] == ["models", "models", "growth"]
    assert "4.00 ms/call (postgres 1.00, web 3.00)" in rows[0]


def test_results_are_written_as_json_with_cpu_by_kind_of_process(tmp_path: Path) -> None:
    report(MEASURED, tmp_path, is_quick=True)
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["quick"] is True
    assert results["machine"]["cores"]
    models, growth = results["rows"]
    assert models["lines"][0]["cpu"] == {"unit": "call", "milliseconds": {"web": 3.0, "postgres": 1.0}}
    assert (models["lines"][0]["ratio"], models["lines"][0]["bound"], models["lines"][0]["met"]) == (
        2.0,
        5,
        False,
    )
    assert models["lines"][1]["ratio"] is None
    assert growth["lines"][0]["cpu"] == "2 ms"


def test_the_chart_shows_every_ratio_and_every_part_of_the_cpu(tmp_path: Path) -> None:
    report(MEASURED, tmp_path, is_quick=False)
    drawn = ET.fromstring((tmp_path / "results.svg").read_text())
    texts = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "models: calls <16>" in texts
    assert {"2.00 ×", "1.00 ×", "web", "postgres", "4.00 ms/call"} <= set(texts)  # noqa: RUF001


def test_a_run_without_results_is_reported_too(tmp_path: Path) -> None:
    report([], tmp_path, is_quick=False)
    assert json.loads((tmp_path / "results.json").read_text())["rows"] == []
