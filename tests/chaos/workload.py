"""One kind of work that goes on while chaos reigns: its processes, its clients, and what they hold the service to.

A workload names the workers it needs, and what of it may still wait at the end (`settling`).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from threading import Event
from typing import ClassVar, Protocol

from tests.chaos.installation import Installation
from tests.chaos.settling import Waiting


class Person(Protocol):
    """A client thread."""

    def run_until(self, over: Event) -> None:
        """Do one thing after another; what was begun is finished."""

    def verify(self) -> None:
        """Check everything this client knows, once nothing is killed any more."""


class Workload(Protocol):
    """One kind of work."""

    workers: ClassVar[Mapping[str, int]]
    """How many of each kind it needs; all workloads share them."""
    waiting: ClassVar[Sequence[Waiting]]

    def __init__(self, installation: Installation, closing: ExitStack) -> None:
        """Prepare what must be there before the first process of the service starts."""

    def begin(self) -> Sequence[Person]:
        """Make the clients, once the fronts answer."""

    def compare(self) -> Iterator[str]:
        """Give every disagreement in words, once all is settled."""
