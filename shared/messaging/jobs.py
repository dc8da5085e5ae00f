"""Background work: the definition of a job, the queue of its messages, and the function that handles it.

The rows in Postgres define the work; a message only wakes a worker. A handler selects due rows under a lock or
lease, and does nothing if no row is due. A periodic sweep selects due rows without a message. So a message may be
lost, delayed or duplicated.

A job is declared where it is implemented, by a decorator with its kind, its queue and the interval at which beat
sends it:

    @sweep("files.expire_due", queue=RETENTION, every_seconds=5)
    def _expire_due(context: StoreContext) -> int:
        return expire_due(context.database, context.store)

`workers/registry.py` lists the modules with each queue's handlers; bindings and schedule follow from that.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from shared.config.settings import Settings
from shared.db.database import Database
from shared.runtime.batches import BUDGET_SECONDS

Part = TypeVar("Part")
Run = TypeVar("Run", bound=Callable[[Any], int])


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A piece of background work in the form that is sent. Its fields are ids and plain values, never content."""

    kind: ClassVar[str]
    queue: ClassVar[str]
    spacing_seconds: ClassVar[float] = 0.0
    """Shortest interval between a process's messages of this class, for work that is cheaper in batches."""


class Context(Protocol):
    """The shared parts of the worker process that handlers work with."""

    settings: Settings
    threads: int
    """How many handlers may run at once in this process."""

    @property
    def database(self) -> Database:
        """The database, which publishes the jobs that handlers enqueue."""

    def once(self, make: Callable[[Any], Part]) -> Part:
        """Return the result of `make(context)`, which is created once in a process."""

    def when_stopping(self, act: Callable[[], object]) -> None:
        """Register a callback that is called when the process is asked to end."""

    def wake(self, queue: str) -> None:
        """Make this process's consumers of a queue, if any, check for work now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """The function that handles one kind of job, with its queue and schedule."""

    kind: str
    queue: str
    run: Callable[[Any], int]
    """Processes the due rows with the worker's context and returns the number of these rows."""
    every_seconds: float | None
    """The interval at which beat sends the job; None if only events send it."""
    budget_seconds: float
    """How long the handler may use a thread before its job is sent again, behind other waiting jobs."""
    in_parallel: bool
    """Whether several threads of a process may run it at once; if not, a second message waits for the first."""


HANDLERS: dict[str, Handler] = {}
"""The handlers of all imported modules, by kind."""


def handles(
    job: type[Job],
    *,
    every_seconds: float | None = None,
    budget_seconds: float = BUDGET_SECONDS,
    in_parallel: bool = False,
) -> Callable[[Run], Run]:
    """Declare the function that handles a class of jobs. If `every_seconds` is given, beat also sends the job."""
    return _declare(job.kind, job.queue, every_seconds, budget_seconds, in_parallel=in_parallel)


def sweep(
    kind: str,
    *,
    queue: str,
    every_seconds: float,
    budget_seconds: float = BUDGET_SECONDS,
    in_parallel: bool = False,
) -> Callable[[Run], Run]:
    """Declare a function that only beat's schedule triggers, at an interval."""
    return _declare(kind, queue, every_seconds, budget_seconds, in_parallel=in_parallel)


def _declare(
    kind: str, queue: str, every_seconds: float | None, budget_seconds: float, *, in_parallel: bool
) -> Callable[[Run], Run]:
    def declare(run: Run) -> Run:
        # Raise at import, so that every test finds a duplicate: two handlers would each handle a part of the jobs.
        if kind in HANDLERS:
            raise ValueError(f"two handlers of {kind}")
        HANDLERS[kind] = Handler(
            kind=kind,
            queue=queue,
            run=run,
            every_seconds=every_seconds,
            budget_seconds=budget_seconds,
            in_parallel=in_parallel,
        )
        return run

    return declare
