"""Run sweeps in bounded batches within a time budget. A long sweep releases its thread and continues later.

`drain` is the loop of every sweep; `run_in_batches` drains a single statement. The caller sets the time budget with
`budget`. Afterwards it checks `is_truncated`, and sends the sweep's job again if it is true. Without a budget a
sweep ends when no row is left.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Executable

from shared.db.database import Database
from shared.observability.telemetry import SWEPT

BUDGET_SECONDS = 5.0
"""How long a sweep may use a thread; a started batch is completed."""


@dataclass(slots=True)
class Budget:
    """The time budget of one sweep."""

    ends_at: float
    is_truncated: bool = False
    """Whether a loop ended although rows may be left."""

    @property
    def is_over(self) -> bool:
        """Whether no further batch may start."""
        return time.monotonic() >= self.ends_at


_current: ContextVar[Budget | None] = ContextVar("sweep_budget", default=None)


@contextlib.contextmanager
def budget(seconds: float = BUDGET_SECONDS) -> Iterator[Budget]:
    """Set the time budget that all calls of `drain` in this block share."""
    given = Budget(time.monotonic() + seconds)
    token = _current.set(given)
    try:
        yield given
    finally:
        _current.reset(token)


def is_over() -> bool:
    """Return whether the time budget of the current sweep is used up."""
    given = _current.get()
    return given is not None and given.is_over


def must_stop() -> bool:
    """Return whether the current loop must end although rows may be left. The sweep's job is then sent again."""
    given = _current.get()
    if given is None or not given.is_over:
        return False
    given.is_truncated = True
    return True


def drain(batch: Callable[[], int], *, size: int) -> int:
    """Run batches until a batch finds fewer than `size` rows or the time is over. Return the total number of rows."""
    total = 0
    while True:
        found = batch()
        total += found
        if found < size or must_stop():
            return total


def run_in_batches(
    database: Database,
    statement: Executable,
    values: Mapping[str, Any] | None = None,
    *,
    size: int,
    swept: str | None = None,
) -> int:
    """Run a statement that claims, deletes or changes at most `:limit` rows, in batches. Return the total of rows.

    Each batch is a transaction of its own. `swept` is the metric label under which rows are counted.
    """

    def batch() -> int:
        with database.autocommit() as session:
            return session.execute(statement, {**(values or {}), "limit": size}).rowcount

    total = drain(batch, size=size)
    if swept is not None:
        SWEPT.labels(swept).inc(total)
    return total
