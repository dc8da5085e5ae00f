"""Resolve names of tests as documents write them: `tests/web/test_x.py::test_y`, with an optional parameter in
brackets, or a file or folder of tests.
"""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]


def is_test(name: str) -> bool:
    """Return whether a name denotes an existing test."""
    path, _, function = name.partition("[")[0].partition("::")
    place = ROOT / path
    if not function:
        return place.is_dir() or (place.is_file() and bool(_functions(place)))
    return place.is_file() and function in _functions(place)


@cache
def _functions(path: Path) -> frozenset[str]:
    return frozenset(
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )
