"""What a test goes through and did not write down itself."""

from collections.abc import Iterable
from typing import TypeVar

Thing = TypeVar("Thing")


def found(things: Iterable[Thing]) -> list[Thing]:
    """Give what a search found; fail if that is nothing, as a loop over nothing would assert nothing."""
    listed = list(things)
    assert listed, "nothing was found to look at"
    return listed
