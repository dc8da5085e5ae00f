"""Each term of the glossary links to a module that contains the term in its name or first line."""

import re

from tests.architecture.test_references import ROOT

_ROW = re.compile(r"^\| ([^|`]+) \| ([^|]*`[^|]*) \|$", re.MULTILINE)


def test_every_term_is_in_a_linked_modules_name_or_first_line() -> None:
    section = (ROOT / "docs" / "glossary.md").read_text().partition('<a id="where"></a>')[2]
    rows = _ROW.findall(section)
    assert len(rows) > 20
    for terms, where in rows:
        modules = re.findall(r"`([^`]+)`", where)
        said = " ".join(f"{module} {(ROOT / module).read_text().splitlines()[0]}" for module in modules)
        plain = said.lower().replace("_", " ")
        assert [term for term in terms.split(", ") if term.lower() not in plain] == [], modules
