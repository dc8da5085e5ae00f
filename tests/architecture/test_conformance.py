"""The conformance page names only tests that exist, and lists every section of the specification."""

import ast
import re
from functools import cache
from pathlib import Path

import web

ROOT = Path(web.__file__).parents[1]
SPECIFICATION = ROOT / "docs" / "specification"
PAGE = (SPECIFICATION / "conformance.md").read_text()
_NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")
_SECTION = re.compile(r"^### \[.+\]\((\w+\.md#[\w-]+)\)$", re.MULTILINE)
_ANCHOR = re.compile(r'<a id="([\w-]+)"></a>')
_PROMISE = re.compile(r"^\| (?!Promise|-)(.+) \|$", re.MULTILINE)


@cache
def names_in(name: str) -> frozenset[str]:
    """Return the names of a file's tests in the form that the page uses."""
    path = (
        ROOT / "sdk" / "tests" / name.removeprefix("sdk/")
        if name.startswith("sdk/")
        else ROOT / "tests" / name
    )
    found = ast.walk(ast.parse(path.read_text())) if path.is_file() else ()
    return frozenset(node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_cited_test_exists() -> None:
    named = _NAMED.findall(PAGE)
    assert len(named) > 100
    assert [f"{path}::{name}" for path, name in named if name not in names_in(path)] == []


def test_every_promise_names_a_test() -> None:
    assert [line for line in _PROMISE.findall(PAGE) if not _NAMED.search(line)] == []


def test_every_section_of_the_specification_has_its_promises() -> None:
    sections = {
        f"{page.name}#{anchor}"
        for page in SPECIFICATION.glob("*.md")
        for anchor in _ANCHOR.findall(page.read_text())
    }
    stands = _SECTION.findall(PAGE)
    assert len(stands) == len(set(stands))
    assert set(stands) == sections
