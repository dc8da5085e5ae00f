"""Find the server programs in installed wheels.

The wheels are not imported: their packages load clients and server managers that this program does not use.
"""

import importlib.util
from pathlib import Path


class StartFailed(Exception):
    """An embedded server did not start; the message contains the reason or names the log."""


def find_program(package: str, pattern: str) -> Path:
    """Return the program of an installed wheel that matches the glob `pattern`. Raises StartFailed if there is none."""
    specification = importlib.util.find_spec(package)
    if specification is None or specification.origin is None:
        raise StartFailed(
            f"The wheel {package} is not installed: install quartermaster[embedded], or set DATABASE_URL, REDIS_URL"
            " and MODELS_REDIS_URL to servers of your own."
        )
    found = sorted(Path(specification.origin).parent.glob(pattern))
    if not found:
        raise StartFailed(
            f"The wheel {package} has no {pattern} for this machine: set DATABASE_URL, REDIS_URL and"
            " MODELS_REDIS_URL to servers of your own."
        )
    return found[0]
