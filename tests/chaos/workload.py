"""The interface of a workload: the processes it needs, its clients, and its comparison at the end.

A workload names the workers it needs, and the pending work that it may leave at the end (`background_work`).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from threading import Event
from typing import ClassVar, Protocol

from tests.chaos.background_work import PendingWork
from tests.chaos.installation import Installation


class Person(Protocol):
    """A client thread."""

    def run_until(self, over: Event) -> None:
        """Act until the run is over; finish what has begun."""

    def verify(self) -> None:
        """Check everything this client knows, after all faults have ended."""


class Workload(Protocol):
    """One kind of load on the service."""

    workers: ClassVar[Mapping[str, int]]
    """How many of each kind it needs; all workloads share them."""
    waiting: ClassVar[Sequence[PendingWork]]

    def __init__(self, installation: Installation, closing: ExitStack) -> None:
        """Create what must exist before the first process of the service starts."""

    def begin(self) -> Sequence[Person]:
        """Create the clients, once the web processes respond."""

    def compare(self) -> Iterator[str]:
        """Yield every disagreement, after background work has finished."""
