"""Check whether a Python was built with profile-guided optimization. Without it, the service uses about 25 % more CPU.

Distributions, container images and uv optimize their builds; version managers compile without it by default. `make`
chooses a Python with this script: `python_build.py optimized` exits with 0 if this Python can run the service and is
optimized, `python_build.py any` if it can run the service. The script must run on any Python 3.
"""

import importlib.util
import sys
import sysconfig

MIN_VERSION = (3, 11)
DISTRIBUTION_PREFIX = "/usr/bin/"
"""Pythons below this path come from a distribution and are optimized, even if `sysconfig` does not record the flag."""
OPTIMIZATION_FLAG = "--enable-optimizations"


def is_optimized() -> bool:
    """Return whether this Python was built with profile-guided optimization."""
    executable = str(getattr(sys, "_base_executable", sys.executable))
    return executable.startswith(DISTRIBUTION_PREFIX) or OPTIMIZATION_FLAG in str(
        sysconfig.get_config_var("CONFIG_ARGS")
    )


def can_run() -> bool:
    """Return whether this Python is new enough and can create a virtual environment."""
    return sys.version_info >= MIN_VERSION and all(map(importlib.util.find_spec, ("venv", "ensurepip")))


if __name__ == "__main__":
    sys.exit(not (can_run() and (is_optimized() or sys.argv[1] == "any")))
