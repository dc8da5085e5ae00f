"""The security pages are complete: each ASVS requirement has a row, and each defense names a test that exists."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support.processes.named_tests import is_test

ROOT = Path(__file__).parents[2]
NUMBERS = dict(line.split() for line in (ROOT / "tests/support/asvs_5_0.txt").read_text().splitlines())
"""The requirements of levels 1 and 2 of ASVS 5.0, by number, with their levels."""
STANDS = {"met", "partly", "operator", "open", "not applicable"}
_TEST = re.compile(r"`((?:sdk/)?tests/[^`]+)`")


def rows_of(page: str) -> list[list[str]]:
    """Return the cells of each row of a page's tables, without the header rows."""
    lines = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    heads = {at - 1 for at, row in enumerate(rows) if set(row) <= {"-", ""}}
    return [row for at, row in enumerate(rows) if at not in heads and at - 1 not in heads]


def test_every_asvs_requirement_has_one_complete_row() -> None:
    rows = rows_of("docs/asvs.md")
    assert {row[0]: row[1] for row in rows} == NUMBERS
    assert len(rows) == len(NUMBERS)
    assert [row[0] for row in rows if len(row) != 5 or not all(row)] == []
    assert {row[3] for row in rows} <= STANDS


def test_count_of_met_requirements_matches_the_tables() -> None:
    counts = Counter(row[3] for row in rows_of("docs/asvs.md"))
    said = ", ".join(
        f"{counts[state]} {state}" for state in ("met", "partly", "operator", "open", "not applicable")
    )
    assert f"{said}, of {len(NUMBERS)}." in (ROOT / "docs/asvs.md").read_text()


def test_every_defence_and_every_attack_names_its_test() -> None:
    rows = [row for row in rows_of("docs/threat-model.md") if _TEST.search(row[-1])]
    defences, attacks = ([row for row in rows if len(row) == cells] for cells in (3, 2))
    assert len(defences) > 50
    assert len(attacks) == 35
    sections = (ROOT / "docs/threat-model.md").read_text().split("## A: ")[1]
    heads = sections.count("| Threat |") + sections.count("| Attack |")
    assert sections.count("\n| ") - 2 * heads == len(rows)


@pytest.mark.parametrize("page", ["docs/asvs.md", "docs/threat-model.md"])
def test_every_test_named_by_a_security_page_exists(page: str) -> None:
    named = set(_TEST.findall((ROOT / page).read_text()))
    assert len(named) > 20
    missing = {name for name in named if not is_test(name) and not (ROOT / name).is_file()}
    assert missing == set()
