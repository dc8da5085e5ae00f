"""Every mutant of the catalogue can be applied and names tests that exist."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.catalogue import Mutant, read_catalogue
from tests.mutants.running import ROOT
from tests.support.processes.named_tests import is_test

DOMAINS = {"credits", "identity", "files", "egress", "agents", "deliveries", "networks", "console"}
CATALOGUE = read_catalogue()


def test_each_mutants_old_text_occurs_exactly_once_in_its_file() -> None:
    """If this fails, the code was rewritten: adapt the mutant to the new code."""
    places = {at.name: (ROOT / at.file).read_text().count(at.old) for at in CATALOGUE}
    assert {name: count for name, count in places.items() if count != 1} == {}
    assert [at.name for at in CATALOGUE if at.old == at.new] == []


def test_each_domain_has_mutants_and_each_mutant_a_name() -> None:
    assert {at.name.partition(".")[0] for at in CATALOGUE} >= DOMAINS
    assert [name for name, count in Counter(at.name for at in CATALOGUE).items() if count > 1] == []


def test_each_test_named_by_a_mutant_exists() -> None:
    missing = {at.name: [test for test in at.tests if not is_test(test)] for at in CATALOGUE}
    assert {name: tests for name, tests in missing.items() if tests} == {}
    assert [at.name for at in CATALOGUE if not at.tests] == []


def test_past_defects_have_mutants() -> None:
    lines = (ROOT / "tests/mutants/README.md").read_text().splitlines()
    rows = [line.strip("|").split(" | ") for line in lines if line.startswith("| ")][2:]
    named = [re.findall(r"`([^`]+)`", mutants) for _, mutants in rows]
    assert len(rows) >= 14
    assert all(named)
    assert {name for names in named for name in names} <= {at.name for at in CATALOGUE}


def test_mutant_with_an_absent_or_ambiguous_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("one\none\n")
    for text in ("one", "two"):
        mutant = Mutant(name="x", file=file.name, old=text, new="", tests=())
        with pytest.raises(ValueError, match="stands"):
            mutant.apply(tmp_path)
    assert file.read_text() == "one\none\n"
