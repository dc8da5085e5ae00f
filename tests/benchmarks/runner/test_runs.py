"""A run of rows keeps all measured lines if a row breaks or the run is interrupted."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmarks.runner.report import Line
from tests.benchmarks.runner.results import report
from tests.benchmarks.runner.runs import INTERRUPTED, run_rows
from tests.support.processes.stack import ROOT


def _whole(what: str) -> Iterator[Line]:
    yield Line(what=what, figure="1/s")


def _breaking(what: str) -> Iterator[Line]:
    yield Line(what=what, figure="1/s")
    raise ValueError("429 too many\nand a page of it")


def _interrupted(what: str) -> Iterator[Line]:
    yield Line(what=what, figure="1/s")
    raise KeyboardInterrupt


def test_a_row_that_breaks_keeps_its_lines_and_those_of_all_others() -> None:
    measured = run_rows({"first": _whole, "second": _breaking, "third": _whole}, "uploads")
    assert [(each.row, len(each.lines), each.failure) for each in measured] == [
        ("first", 1, ""),
        ("second", 1, "ValueError: 429 too many"),
        ("third", 1, ""),
    ]


def test_an_interruption_ends_the_run_and_keeps_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    measured = run_rows({"first": _whole, "second": _interrupted, "third": _whole}, "uploads")
    assert [(each.row, len(each.lines), each.failure) for each in measured] == [
        ("first", 1, ""),
        ("second", 1, INTERRUPTED),
    ]
    assert "not measured: third" in capsys.readouterr().err


def test_the_report_lists_the_row_that_broke(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured = run_rows({"first": _breaking, "second": _whole}, "uploads")
    report(measured, tmp_path, is_quick=True)
    _, *rows = capsys.readouterr().out.partition("\n\n")[0].splitlines()
    assert [row.split()[0] for row in rows] == ["first", "first", "second"]
    assert "broke: ValueError: 429 too many" in rows[1]
    results = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert [row["failure"] for row in results] == ["ValueError: 429 too many", ""]


def test_an_interrupted_process_reports_and_exits_with_a_failure(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks",
        "--directory",
        str(tmp_path),
        "--results",
        str(tmp_path),
    ]
    with subprocess.Popen(
        [*command, "admission"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stderr is not None
        assert run.stderr.readline() == "measuring admission\n"
        run.send_signal(signal.SIGINT)
        printed, _ = run.communicate(timeout=120)
    assert run.returncode == 1
    assert f"broke: {INTERRUPTED}" in printed
    assert json.loads((tmp_path / "results.json").read_text())["rows"][0]["failure"] == INTERRUPTED
