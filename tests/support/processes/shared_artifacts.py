"""What one process of a run makes for all of them: a variable says where it is, and for which checkout."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def offer(what: str, place: Path) -> None:
    """Say where something is, to this process and to those that it starts."""
    os.environ[_variable(what)] = f"{ROOT}:{place}"


def withdraw(what: str) -> None:
    """Say that it is there no longer."""
    del os.environ[_variable(what)]


def find(what: str) -> Path | None:
    """Give where it is, if somebody made it for this checkout."""
    checkout, _, place = os.environ.get(_variable(what), "").rpartition(":")
    return Path(place) if checkout == str(ROOT) else None


def _variable(what: str) -> str:
    return f"PYTEST_{what.upper()}"
