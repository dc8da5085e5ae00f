"""No test of this project passes without checking anything.

A test may not assert only inside loops over a search that may find nothing, assert constants, or accept any of several
responses, unless it states a reason.
"""

import ast
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TypeGuard

import pytest

ROOT = Path(__file__).parents[2]
CARRIED_ON = {"enumerate", "zip", "reversed", "sorted", "list", "set", "product", "batched", "pairwise"}
"""Functions that return the items of their arguments: the arguments are checked instead."""
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
    """Yield the outermost `for` loop around each assertion below a node, or None for an assertion outside of loops."""
    for child in ast.iter_child_nodes(node):
        around = loop or (child if isinstance(child, ast.For) else None)
        if is_assertion(child):
            yield around
        yield from loops_around_assertions(child, around)


def is_discovered(iterated: ast.expr, bound: dict[str, ast.expr]) -> bool:
    """Return whether a value comes from a call, which may return nothing, and not from a literal in the test."""
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
    """List the tests whose assertions all stand in loops over a call's result that is not wrapped in `found`."""
    offences = []
    for test in functions_of(source):
        loops = list(loops_around_assertions(test))
        if loops and all(loop and is_discovered(loop.iter, bound_names(test)) for loop in loops):
            offences.append(f"{test.name} loops over {ast.unparse(next(filter(None, loops)).iter)}")
    return offences


def test_no_test_asserts_only_in_loops_over_search_results() -> None:
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
def test_rule_finds_assertions_in_possibly_empty_loops(body: str, is_empty: bool) -> None:
    assert bool(empty_loops(f"def test_x():\n {body}\n")) is is_empty


SEVERAL = {
    "tests/upstreams/test_genuine_server.py::test_a_streamed_response": "the model decides where it ends",
    "tests/journeys/test_restarted_database.py::"
    "test_service_resumes_without_partial_state_after_postgres_restarts": "its first answer was lost, or never given",
    "tests/deploy/test_alerts.py::test_every_alert_leads_to_what_to_do": "each alert has its own severity",
    "tests/deploy/embedded/test_embedded.py::"
    "test_postgres_in_a_closed_directory_reads_only_its_own_files": "containers differ",
    "tests/web/a2a/test_errors.py::test_settings_that_disable_features": "a worker may have begun the turn meanwhile",
}
"""The reason why a test accepts any of several responses: what decides it lies outside the test's control."""


def is_fixed(node: ast.expr) -> bool:
    """Return whether an expression is a literal or a member of an enumeration."""
    if isinstance(node, ast.Tuple | ast.UnaryOp | ast.BinOp):
        return all(is_fixed(at) for at in ast.iter_child_nodes(node) if isinstance(at, ast.expr))
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Attribute) and node.attr.isupper())


def is_equation(node: ast.expr) -> TypeGuard[ast.Compare]:
    return isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq)


def accepts_anything(test: ast.expr) -> bool:
    """Return whether an assertion accepts any of several literal responses, or compares only constants."""
    match test:
        case ast.Compare(
            left=left, ops=[ast.In()], comparators=[ast.Tuple() | ast.List() | ast.Set() as answers]
        ):
            return len(answers.elts) > 1 and not is_fixed(left) and all(map(is_fixed, answers.elts))
        case ast.BoolOp(op=ast.Or(), values=values):
            asked = [ast.unparse(at.left) for at in values if is_equation(at)]
            return len(asked) > len(set(asked))
    return is_fixed(test)


def find_lenient_tests(source: str) -> list[str]:
    """List the tests with an assertion that accepts any of several responses, or that cannot fail."""
    return [
        test.name
        for test in functions_of(source)
        if any(isinstance(at, ast.Assert) and accepts_anything(at.test) for at in ast.walk(test))
    ]


def test_no_test_accepts_several_responses_without_a_reason() -> None:
    paths = chain((ROOT / "tests").rglob("test_*.py"), (ROOT / "sdk" / "tests").rglob("test_*.py"))
    found = {
        f"{path.relative_to(ROOT)}::{name}" for path in paths for name in find_lenient_tests(path.read_text())
    }
    assert found == SEVERAL.keys()


@pytest.mark.parametrize(
    ("assertion", "is_wrong"),
    [
        ("assert status in (401, 403)", True),
        ("assert end.kind in {Kind.END, Kind.FAILED}", True),
        ("assert answer.status == 404 or answer.status == 410", True),
        ("assert 1", True),
        ("assert (1, 'x')", True),
        ("assert status in (404,)", False),
        ("assert status in expected", False),
        ("assert 'words' in (said, told)", False),
        ("assert status == 404 or name == 'x'", False),
    ],
)
def test_rule_finds_assertions_that_accept_anything(assertion: str, is_wrong: bool) -> None:
    assert bool(find_lenient_tests(f"def test_x():\n {assertion}\n")) is is_wrong
