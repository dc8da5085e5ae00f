"""Every place of the product that opens a transaction, read from its source, but those of routes that only read."""

import ast
from collections.abc import Iterator

from tests.proof.commits import ROOT, Site

PACKAGES = ("shared", "web", "workers")
OPENING = frozenset({"transaction", "autocommit"})
_READING = frozenset({"page", "pages"})
"""How routes that only read are declared, besides as a GET."""
_WRITING = frozenset({"come_back", "complete_installation"})
"""Routes that write at a GET: a browser comes back from where its user agreed."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def list_places() -> set[Site]:
    """List them; in `web` what is in autocommit reads, which `test_places.py` looks at."""
    files = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return {
        site
        for path in files
        for site in _places_of(str(path.relative_to(ROOT)), ast.parse(path.read_text()), "")
        if site.path != "shared/database.py"
    }


def _places_of(path: str, node: ast.AST, function: str) -> Iterator[Site]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Function | ast.ClassDef):
            is_reading = any(map(_is_reading, child.decorator_list)) and child.name not in _WRITING
            if not is_reading:
                yield from _places_of(path, child, f"{function}.{child.name}".lstrip("."))
            continue
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute) and not child.args:
            opens = child.func.attr
            if opens == "transaction" or (opens in OPENING and not path.startswith("web/")):
                yield Site(path, child.lineno, function)
        yield from _places_of(path, child, function)


def _is_reading(decorator: ast.expr) -> bool:
    if not (isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Attribute)):
        return False
    first = decorator.args[0] if decorator.args else None
    is_get = isinstance(first, ast.Constant) and first.value == "GET"
    return is_get or decorator.func.attr in _READING
