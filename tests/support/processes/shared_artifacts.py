"""Artifacts that one process of a run creates for all: an environment variable holds their place and checkout."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def offer(what: str, place: Path) -> None:
    """Publish the place of an artifact to this process and its children."""
    os.environ[_variable(what)] = f"{ROOT}:{place}"


def withdraw(what: str) -> None:
    """Withdraw an artifact."""
    del os.environ[_variable(what)]


def find(what: str) -> Path | None:
    """Return the place of an artifact, or None if this checkout has none."""
    checkout, _, place = os.environ.get(_variable(what), "").rpartition(":")
    return Path(place) if checkout == str(ROOT) else None


def _variable(what: str) -> str:
    return f"PYTEST_{what.upper()}"
