"""Install yardsticks from the Python package index, each in a virtual environment. A missing one is reported once.

If a yardstick cannot be installed or does not start, the row is measured without it.
"""

import subprocess
import sys
import venv
from pathlib import Path

from tests.support.processes.stack import Service, TookTooLong


def install(environment: Path, package: str, program: str, *, seconds: float) -> Path | None:
    """Return a program of a package, installed if needed. Return None after one line with the reason if that fails."""
    path = environment / "bin" / program
    if path.exists():
        return path
    python = environment / "bin" / "python"
    try:
        if not python.exists():
            venv.create(environment, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", package]
        done = subprocess.run(
            pip, capture_output=True, text=True, errors="replace", timeout=seconds, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        _tell(package, str(error))
        return None
    if not path.exists():
        _tell(package, done.stderr)
        return None
    return path


def is_usable(server: Service) -> bool:
    """Return whether a started yardstick responds. If it does not, stop it and print one line."""
    try:
        server.wait_until_answering()
    except TookTooLong as error:
        server.kill()
        _tell(server.name, str(error))
        return False
    return True


def _tell(what: str, reason: str) -> None:
    errors = [line for line in reason.splitlines() if line.strip() and not line.startswith("WARNING")]
    print(
        f"yardstick missing: {what}: {errors[-1] if errors else 'no reason given'}",
        file=sys.stderr,
        flush=True,
    )
