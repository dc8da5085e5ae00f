"""Compile the tests once before the test processes start: pytest rewrites the assertions of each module.

The results are stored beside the tests, as Python does for any module.
"""

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import Path

FOLDERS = ("tests", "sdk/tests")


def compile_tests(root: Path) -> None:
    """Compile all tests below, with one process for each core; do nothing if bytecode is not written."""
    if sys.dont_write_bytecode:
        return
    files = sorted(file for folder in FOLDERS for file in (root / folder).rglob("test_*.py"))
    shares = os.cpu_count() or 1
    children = []
    for share in range(shares):
        child = os.fork()
        if child == 0:
            try:
                _compile(
                    ".".join(file.relative_to(root).with_suffix("").parts) for file in files[share::shares]
                )
            finally:
                os._exit(0)  # The process that imports a missing file compiles it.
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def _compile(names: Iterable[str]) -> None:
    for name in names:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            continue
        module = importlib.util.module_from_spec(spec)
        module.__dict__["__builtins__"] = {}
        with contextlib.suppress(
            ImportError
        ):  # This code runs while the module is compiled, and cannot import.
            spec.loader.exec_module(module)
