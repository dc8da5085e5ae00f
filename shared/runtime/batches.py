"""Sweep in bounded batches, within a budget of time: a long sweep gives its thread back and goes on later.

`drain` is the one loop of every sweep; `run_in_batches` drains a single statement. A caller sets the time by
`budget`, and asks afterwards whether the sweep was cut short, to send for it again. Without a budget it ends when
nothing is left.
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
"""How long a sweep keeps a thread; a batch that has begun is finished."""


@dataclass(slots=True)
class Budget:
    """The time of one sweep."""

    ends_at: float
    is_truncated: bool = False
    """Whether a loop ended before it found nothing more."""

    @property
    def is_over(self) -> bool:
        """Whether no further batch may begin."""
        return time.monotonic() >= self.ends_at


_current: ContextVar[Budget | None] = ContextVar("sweep_budget", default=None)


@contextlib.contextmanager
def budget(seconds: float = BUDGET_SECONDS) -> Iterator[Budget]:
    """Give every drain within this block so much time together."""
    given = Budget(time.monotonic() + seconds)
    token = _current.set(given)
    try:
        yield given
    finally:
        _current.reset(token)


def is_over() -> bool:
    """Tell whether the time of the sweep is over."""
    given = _current.get()
    return given is not None and given.is_over


def must_stop() -> bool:
    """Tell a loop whether it has to end although it may find more; then the sweep is sent for again."""
    given = _current.get()
    if given is None or not given.is_over:
        return False
    given.is_truncated = True
    return True


def drain(batch: Callable[[], int], *, size: int) -> int:
    """Carry out batches until one finds less than `size` or the time is over; return how much all of them found."""
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
    """Drain a statement that claims, deletes or changes at most `:limit` rows; return how many all of them were.

    Each batch is a transaction of its own. `swept` is the label under which they are counted.
    """

    def batch() -> int:
        with database.autocommit() as session:
            return session.execute(statement, {**(values or {}), "limit": size}).rowcount

    total = drain(batch, size=size)
    if swept is not None:
        SWEPT.labels(swept).inc(total)
    return total
