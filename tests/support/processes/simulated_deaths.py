"""Ends of a process in the middle of its work, acted out in the process of the test: nothing after the point runs."""

import pytest

from shared import failpoints


class Died(BaseException):
    """The process ended here."""


def die_once(patch: pytest.MonkeyPatch, point: str) -> list[str]:
    """Raise Died where this fault point is reached first; give a list that then names it."""
    reached: list[str] = []

    def reach(name: str) -> None:
        if name == point and not reached:
            reached.append(name)
            raise Died(name)

    patch.setattr(failpoints, "hit", reach)
    return reached
