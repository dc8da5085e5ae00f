"""`make` selects an optimized Python if there is one; `quartermaster doctor` reports one that is not."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from deploy import python_build
from deploy.cli import health_report

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "python_build.py"


def chosen(directory: Path, **answers: str) -> str:
    """Return the Python that `make` selects among stand-ins that accept `any`, `optimized` or nothing."""
    for name, can in answers.items():
        program = directory / name.replace("_", ".")
        program.write_text(f'#!/bin/sh\ncase "{can}" in *"$2"*) exit 0;; esac; exit 1\n')
        program.chmod(0o755)
    make = ["make", "--no-print-directory", "--eval", "chosen: ; @echo $(PYTHON)", "chosen"]
    environment = {"PATH": f"{directory}:/usr/bin:/bin"}
    return subprocess.run(
        make, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()


def the_system_s_or(other: str) -> str:
    """Return the system's Python if it can run the service; `make` tries it at a fixed position."""
    system = Path("/usr/bin/python3")
    can = system.exists() and subprocess.run([system, SCRIPT, "optimized"], check=False).returncode == 0
    return str(system) if can else other


def test_the_first_python_that_was_built_to_be_fast_is_taken(tmp_path: Path) -> None:
    others = {"python3_13": "any optimized", "python3_12": "any", "python3_11": "any"}
    assert chosen(tmp_path, python3="any", **others) == the_system_s_or("python3.13")
    assert chosen(tmp_path, python3="any optimized", **others) == "python3"


def test_a_python_that_cannot_run_the_service_is_never_taken(tmp_path: Path) -> None:
    assert chosen(tmp_path, python3="", python3_12="any") == the_system_s_or("python3.12")


def test_this_python_can_run_the_service() -> None:
    """The tests themselves run with a Python that `make` selected."""
    assert subprocess.run([sys.executable, SCRIPT, "any"], check=False).returncode == 0


@pytest.mark.parametrize(
    ("executable", "asked_for", "is_optimized"),
    [
        ("/usr/bin/python3.11", "'--enable-shared'", True),
        ("/usr/local/bin/python3.13", "'--enable-optimizations' '--with-lto'", True),
        ("/home/ada/.pyenv/versions/3.11.7/bin/python3.11", "'--enable-shared'", False),
    ],
)
def test_distribution_python_and_optimized_builds_count_as_optimized(
    monkeypatch: pytest.MonkeyPatch, executable: str, asked_for: str, is_optimized: bool
) -> None:
    monkeypatch.setattr(sys, "_base_executable", executable)
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: asked_for)
    assert python_build.is_optimized() is is_optimized
    states = {finding.state for finding in health_report.check_python()}
    assert (health_report.State.WARNING in states) is not is_optimized
