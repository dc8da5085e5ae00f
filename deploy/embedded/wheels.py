"""Find the server programs in installed wheels.

The packages in the wheels are not imported, because they load clients and server managers that nothing here uses.
"""

import importlib.util
from pathlib import Path


class StartFailed(Exception):
    """An embedded server did not start. The message contains the reason or the path of the log."""


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
