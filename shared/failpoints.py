"""Failpoints: named points at which a test may end the process, between any two steps of a flow.

The setting `FAULTS` arms them, as `upload.committed` or, to let some pass first, `upload.committed=3`.
"""

import os
import signal

_armed: dict[str, int] = {}


def arm(points: str) -> None:
    """Arm the comma-separated points; called once at start with the setting."""
    for point in filter(None, points.split(",")):
        name, _, passes = point.strip().partition("=")
        _armed[name] = int(passes or 0)


def hit(point: str) -> None:
    """Die here by SIGKILL if a test has armed this point."""
    if _armed and point in _armed:
        if _armed[point] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        _armed[point] -= 1


def is_armed(point: str) -> bool:
    """Tell whether a test has armed this point, where one changes what is done and ends nothing."""
    return point in _armed
