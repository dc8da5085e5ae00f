"""Functions have at most forty lines; `gauges.py` measures modules."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.test_rules import ROOT, sources

FUNCTION_LINES = 40
"""Not counting the docstring. Ten lines are usual."""
MIGRATIONS = "shared/migrations/versions/"
"""A migration is written once, from top to bottom, and never changed."""


def everything() -> Iterator[tuple[Path, str]]:
    """Return every module of the product and of its SDK."""
    yield from sources()
    for path in sorted((ROOT / "sdk" / "src").rglob("*.py")):
        yield path.relative_to(ROOT), path.read_text()


def functions() -> Iterator[tuple[str, int]]:
    """Yield every function with its number of lines, not counting the docstring."""
    for path, source in everything():
        if path.as_posix().startswith(MIGRATIONS):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path}:{node.lineno} {node.name}", lines_of(node)


def lines_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def test_no_function_is_longer_than_forty_lines() -> None:
    assert [(name, lines) for name, lines in functions() if lines > FUNCTION_LINES] == []
