"""Run another actor at a failpoint of a flow: its whole operation ends in another thread before the flow continues.

If the actor waits for a lock that the flow holds, the flow continues first: then the database orders the two.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager

import pytest

from shared import failpoints
from tests.proof.world import World

LOOK_SECONDS = 0.005
PATIENCE_SECONDS = 60.0
VISITOR = "visitor"
"""The prefix of the names of visitors' threads."""
_WAITING = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
reached: set[str] = set()
"""Every failpoint that any run of this process has reached."""


class Visit:
    """An operation that runs once at a failpoint. `waited` tells whether the flow had to continue before it ended."""

    def __init__(self, world: World, act: Callable[[], object]) -> None:
        self.waited = False
        self._world = world
        self._act = act
        self._threads = ThreadPoolExecutor(1, thread_name_prefix=VISITOR)
        self._under_way: Future[object] | None = None

    def begin(self) -> None:
        """Run the operation. Return when it has ended, or waits for a lock."""
        if self._under_way is not None:
            return
        self._under_way = self._threads.submit(self._act)
        while not wait([self._under_way], LOOK_SECONDS).done:
            if self._world.sql(_WAITING)[0][0]:
                self.waited = True
                return

    def end(self) -> bool:
        """Wait until the operation ends. Raises its error. Return whether it was begun."""
        if self._under_way is not None:
            self._under_way.result(PATIENCE_SECONDS)
        self._threads.shutdown()
        return self._under_way is not None


@contextmanager
def visiting(world: World, point: str, act: Callable[[], object]) -> Iterator[Visit]:
    """Run an operation when the block first reaches this failpoint."""
    visit = Visit(world, act)

    def hit(name: str) -> None:
        if name == point and not threading.current_thread().name.startswith(VISITOR):
            visit.begin()

    patch = pytest.MonkeyPatch()
    patch.setattr(failpoints, "hit", hit)
    try:
        yield visit
    finally:
        patch.undo()


@contextmanager
def noting_points() -> Iterator[list[str]]:
    """List the failpoints that the block reaches, in order, each once."""
    points: dict[str, None] = {}
    patch = pytest.MonkeyPatch()
    patch.setattr(failpoints, "hit", points.setdefault)
    found: list[str] = []
    try:
        yield found
    finally:
        patch.undo()
        found += points
        reached.update(points)
