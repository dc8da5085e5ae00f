"""Where the wheels keep their programs, found without importing them: their imports do more than we ask for."""

import importlib.util
from pathlib import Path


class StartFailed(Exception):
    """An embedded server did not start; the message says why or names its log."""


def find_program(package: str, pattern: str) -> Path:
    """Give the program of an installed wheel that matches `pattern`; raises `StartFailed` if there is none."""
    specification = importlib.util.find_spec(package)
    if specification is None or specification.origin is None:
        raise StartFailed(
            f"The wheel {package} is not installed: install quartermaster[embedded], or name servers of your own."
        )
    found = sorted(Path(specification.origin).parent.glob(pattern))
    if not found:
        raise StartFailed(
            f"The wheel {package} holds no {pattern} for this machine; name servers of your own."
        )
    return found[0]
