"""Folders of tests mirror the packages that they test, and each test file begins with a docstring about its subject."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.processes.collected_cases import found

ROOT = Path(__file__).parents[2]
PACKAGES = ("web", "workers", "shared", "deploy")
ACROSS = {
    "architecture",
    "benchmarks",
    "brokers",
    "browser",
    "chaos",
    "clients",
    "contracts",
    "deployment",
    "fuzz",
    "hosts",
    "journeys",
    "mutants",
    "openapi",
    "proof",
    "strict_clients",
    "support",
    "upstreams",
}
"""Folders of tests that cross packages, as `docs/style.md` lists them."""


def folders(below: Path) -> Iterator[Path]:
    yield from (path for path in below.rglob("*") if path.is_dir() and path.name != "__pycache__")


def test_folders_of_tests_mirror_packages() -> None:
    tops = {path.name for path in (ROOT / "tests").iterdir() if (path / "__init__.py").exists()}
    assert tops == ACROSS.union(PACKAGES)
    for package in PACKAGES:
        for folder in folders(ROOT / "tests" / package):
            mirrored = ROOT / folder.relative_to(ROOT / "tests")
            assert (mirrored / "__init__.py").exists(), f"{folder} tests a package that is not there"


def test_style_page_lists_the_folders_of_cross_package_tests() -> None:
    style = (ROOT / "docs" / "style.md").read_text()
    assert [folder for folder in ACROSS if f"`{folder}`" not in style] == []


def test_every_test_file_has_a_module_docstring() -> None:
    for path in found((ROOT / "tests").rglob("test_*.py")):
        said = ast.get_docstring(ast.parse(path.read_text()))
        assert said, f"{path} says nothing"
        assert path.parent.joinpath("__init__.py").exists(), f"{path.parent} is no package"


def test_only_test_files_have_names_that_pytest_collects() -> None:
    """Pytest would collect a helper file with a test's name, and would ignore tests in a file with another name."""
    for path in found((ROOT / "tests").rglob("*.py")):
        names = [at.name for at in ast.parse(path.read_text()).body if isinstance(at, ast.FunctionDef)]
        has_tests = any(name.startswith("test_") for name in names)
        assert has_tests == path.name.startswith("test_"), path
