"""Tests that cannot fail are not there: no test asserts only in a loop over what a search may not have found."""

import ast
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CARRIED_ON = {"enumerate", "zip", "reversed", "sorted", "list", "set", "product", "batched", "pairwise"}
"""Functions that find nothing themselves: what they are given is looked at."""
MADE = {"range", "found"}


def functions_of(source: str) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node


def is_assertion(node: ast.AST) -> bool:
    if isinstance(node, ast.With):
        return any("raises" in ast.unparse(item.context_expr) for item in node.items)
    return isinstance(node, ast.Assert)


def loops_around_assertions(node: ast.AST, loop: ast.For | None = None) -> Iterator[ast.For | None]:
    """The outermost loop around each assertion below a node; None for one that stands in no loop."""
    for child in ast.iter_child_nodes(node):
        around = loop or (child if isinstance(child, ast.For) else None)
        if is_assertion(child):
            yield around
        yield from loops_around_assertions(child, around)


def is_discovered(iterated: ast.expr, bound: dict[str, ast.expr]) -> bool:
    """Tell whether something comes from a call, which may find nothing, rather than from what the test says."""
    match iterated:
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in CARRIED_ON:
            return any(is_discovered(argument, bound) for argument in arguments)
        case ast.Call(func=ast.Name(id=name)):
            return name not in MADE
        case ast.Call(func=ast.Attribute(value=of, attr="items" | "values" | "keys")):
            return is_discovered(of, bound)
        case ast.Call():
            return True
        case ast.Name(id=name) if name in bound:
            return is_discovered(bound[name], {})
    return False


def bound_names(test: ast.FunctionDef) -> dict[str, ast.expr]:
    assignments = [node for node in ast.walk(test) if isinstance(node, ast.Assign)]
    return {at.id: node.value for node in assignments for at in node.targets if isinstance(at, ast.Name)}


def empty_loops(source: str) -> list[str]:
    """Every test that asserts nothing but in loops over what a call found, without `found` around it."""
    offences = []
    for test in functions_of(source):
        loops = list(loops_around_assertions(test))
        if loops and all(loop and is_discovered(loop.iter, bound_names(test)) for loop in loops):
            offences.append(f"{test.name} loops over {ast.unparse(next(filter(None, loops)).iter)}")
    return offences


def test_no_test_asserts_only_about_what_may_not_be_there() -> None:
    paths = chain((ROOT / "tests").rglob("test_*.py"), (ROOT / "sdk" / "tests").rglob("test_*.py"))
    offences = {str(path.relative_to(ROOT)): empty_loops(path.read_text()) for path in paths}
    assert len(offences) > 100
    assert {path: loops for path, loops in offences.items() if loops} == {}


@pytest.mark.parametrize(
    ("body", "is_empty"),
    [
        ("for at in search():\n  assert at", True),
        ("for at in enumerate(path.glob('*')):\n  assert at", True),
        ("listed = ask().items()\n for at in listed:\n  assert at", True),
        ("for at in found(search()):\n  assert at", False),
        ("for at in search():\n  assert at\n assert 1", False),
        ("for at in [1, 2]:\n  assert at", False),
        ("for at in KNOWN.values():\n  assert at", False),
    ],
)
def test_the_rule_knows_a_loop_over_nothing(body: str, is_empty: bool) -> None:
    assert bool(empty_loops(f"def test_x():\n {body}\n")) is is_empty
