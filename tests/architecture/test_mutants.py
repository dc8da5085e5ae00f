"""Every row of the catalogue is a change that can be made, and names tests that are there."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.catalogue import Mutant, read_catalogue
from tests.mutants.running import ROOT
from tests.support.processes.named_tests import is_test

DOMAINS = {"credits", "identity", "files", "egress", "agents", "deliveries", "networks", "console"}
CATALOGUE = read_catalogue()


def test_each_text_stands_exactly_once_where_the_catalogue_says() -> None:
    """What was rewritten since has another mutant now: write it down."""
    places = {at.name: (ROOT / at.file).read_text().count(at.old) for at in CATALOGUE}
    assert {name: count for name, count in places.items() if count != 1} == {}
    assert [at.name for at in CATALOGUE if at.old == at.new] == []


def test_each_domain_has_mutants_and_each_mutant_a_name() -> None:
    assert {at.name.partition(".")[0] for at in CATALOGUE} >= DOMAINS
    assert [name for name, count in Counter(at.name for at in CATALOGUE).items() if count > 1] == []


def test_each_test_that_must_notice_is_there() -> None:
    missing = {at.name: [test for test in at.tests if not is_test(test)] for at in CATALOGUE}
    assert {name: tests for name, tests in missing.items() if tests} == {}
    assert [at.name for at in CATALOGUE if not at.tests] == []


def test_what_was_once_wrong_has_its_mutants() -> None:
    lines = (ROOT / "tests/mutants/README.md").read_text().splitlines()
    rows = [line.strip("|").split(" | ") for line in lines if line.startswith("| ")][2:]
    named = [re.findall(r"`([^`]+)`", mutants) for _, mutants in rows]
    assert len(rows) >= 14
    assert all(named)
    assert {name for names in named for name in names} <= {at.name for at in CATALOGUE}


def test_a_text_that_stands_twice_or_nowhere_is_no_mutant(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("one\none\n")
    for text in ("one", "two"):
        mutant = Mutant(name="x", file=file.name, old=text, new="", tests=())
        with pytest.raises(ValueError, match="stands"):
            mutant.apply(tmp_path)
    assert file.read_text() == "one\none\n"
