"""Check that a test's generated list of cases is not empty."""

from collections.abc import Iterable
from typing import TypeVar

Thing = TypeVar("Thing")


def found(things: Iterable[Thing]) -> list[Thing]:
    """Return the cases that a search found; fail if there are none, because a loop over no cases asserts nothing."""
    listed = list(things)
    assert listed, "nothing was found to look at"
    return listed
