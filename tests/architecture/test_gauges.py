"""The gauges of `make lint` count what they say, and a budget never gets worse by `--lower`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.architecture import gauges

SAMPLE = '''"""What is read is checked."""


def find() -> None:
    """Give whoever asks a row."""
    # The row is locked: two sweeps may meet here.
    said = 1
    return said
'''


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "sample.py").write_text(SAMPLE)
    return tmp_path


@pytest.mark.parametrize(
    ("gauge", "value"),
    [
        (gauges.vague_first_verbs, 100),
        (gauges.relative_pronouns, 1),
        (gauges.clause_subjects, 1),
        (gauges.coined_identifiers, 2),
        (gauges.comments_per_100_lines, 20),
        (gauges.module_lines_p95, 8),
        (gauges.modules_in_largest_folder, 1),
    ],
)
def test_gauge_counts_its_place_in_a_sample(
    root: Path, gauge: Callable[[Path], gauges.Measured], value: float
) -> None:
    assert gauge(root)[0] == value


def test_unknown_identifier_in_backticks_is_unresolved() -> None:
    known = {"shared", "find_row"}
    assert not gauges._is_unknown("shared.find_row()", known)
    assert gauges._is_unknown("lost_row", known)
    assert not gauges._is_unknown("prose", known)


def test_lowered_budget_takes_better_values_only() -> None:
    budget = {"clause_subjects": 5, "comments_per_100_lines": 2.0}
    better = {"clause_subjects": 4, "comments_per_100_lines": 2.5}
    worse = {"clause_subjects": 6, "comments_per_100_lines": 1.5}
    assert gauges.lowered(budget, better) == better
    assert gauges.lowered(budget, worse) == budget
