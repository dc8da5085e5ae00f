"""The SDK imports nothing of the service, and optional packages only where they are used."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import quartermaster

PACKAGE = Path(quartermaster.__file__).parent
ALWAYS = {"anyio", "httpx", "quartermaster"}
FOR_AGENTS = {"a2a", "google", "joserfc", "starlette", "uvicorn"}
OF_AGENTS = ("agents/", "key_sets", "verification")


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def test_each_module_imports_only_what_its_part_of_the_sdk_requires() -> None:
    modules = list(PACKAGE.rglob("*.py"))
    assert modules
    for path in modules:
        name = path.relative_to(PACKAGE).as_posix()
        allowed = ALWAYS | (FOR_AGENTS if name.startswith(OF_AGENTS) else {"openai"})
        assert set(imported(ast.parse(path.read_text()))) - allowed - sys.stdlib_module_names == set(), name


def test_importing_the_client_loads_nothing_optional() -> None:
    optional = sorted(FOR_AGENTS | {"openai"})
    script = f"import sys, quartermaster; print([name for name in {optional!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
