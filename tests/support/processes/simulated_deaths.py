"""Simulate the death of a process inside the test's process: no code after the fault point runs."""

import pytest

from shared import failpoints


class Died(BaseException):
    """The simulated process died here."""


def die_once(patch: pytest.MonkeyPatch, point: str) -> list[str]:
    """Raise Died when this fault point is first reached; the returned list then contains it."""
    reached: list[str] = []

    def reach(name: str) -> None:
        if name == point and not reached:
            reached.append(name)
            raise Died(name)

    patch.setattr(failpoints, "hit", reach)
    return reached
