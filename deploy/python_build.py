"""Tell how a Python was built: one without profile-guided optimization takes a quarter more CPU for all that we do.

Distributions, container images and uv optimize theirs; version managers that compile one do not unless they are asked
to. `make` chooses by this file, before anything is installed and by whatever Python it tries: `python_build.py
optimized` ends well if that Python can run the service and is optimized, `python_build.py any` if it can.
"""

import importlib.util
import sys
import sysconfig

OLDEST = (3, 11)
OF_A_DISTRIBUTION = "/usr/bin/"
"""Where distributions install theirs, which they optimize without saying so in what `sysconfig` tells."""
ASKED_TO = "--enable-optimizations"


def is_optimized() -> bool:
    """Tell whether this Python was built with profile-guided optimization."""
    executable = str(getattr(sys, "_base_executable", sys.executable))
    return executable.startswith(OF_A_DISTRIBUTION) or ASKED_TO in str(
        sysconfig.get_config_var("CONFIG_ARGS")
    )


def can_run() -> bool:
    """Tell whether this Python is new enough, and can make a virtual environment."""
    return sys.version_info >= OLDEST and all(map(importlib.util.find_spec, ("venv", "ensurepip")))


if __name__ == "__main__":
    sys.exit(not (can_run() and (is_optimized() or sys.argv[1] == "any")))
