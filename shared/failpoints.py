"""Failpoints: named points at which a test can kill the process, between any two steps of a flow.

The setting FAULTS arms them: `upload.committed`, or `upload.committed=3` to pass three times first.
"""

import os
import signal

_armed: dict[str, int] = {}


def arm(points: str) -> None:
    """Arm a comma-separated list of points; called once at start."""
    for point in filter(None, points.split(",")):
        name, _, passes = point.strip().partition("=")
        _armed[name] = int(passes or 0)


def hit(point: str) -> None:
    """Kill this process with SIGKILL if the point is armed and its passes are used up."""
    if _armed and point in _armed:
        if _armed[point] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        _armed[point] -= 1


def is_armed(point: str) -> bool:
    """Return whether a point is armed; for points that change behavior instead of killing the process."""
    return point in _armed
