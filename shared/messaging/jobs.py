"""Background work: what a job is, which queue its message travels by, and the function that does it.

The row in Postgres is the truth and the message only a hint that there is work: a handler looks for work under a lock
or lease and does nothing when there is none, and a sweep on the schedule looks without any message. So a message may
be lost, late or doubled.

A job is declared where it is implemented, by a decorator that gives its kind, its queue, and how often beat sends it:

    @sweep("files.expire_due", queue=RETENTION, every_seconds=5)
    def _expire_due(context: StoreContext) -> int:
        return expire_due(context.database, context.store)

`workers/registry.py` lists the modules in which a queue's handlers stand; bindings and schedule follow from that.
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
    """A piece of background work as it is sent; its fields are ids and plain values, never bytes."""

    kind: ClassVar[str]
    queue: ClassVar[str]
    spacing_seconds: ClassVar[float] = 0.0
    """How far apart a process sends its messages, for work that is cheaper in batches; the first goes at once."""


class Context(Protocol):
    """What handlers work with: the parts of the worker process that they share."""

    settings: Settings
    threads: int
    """How many handlers may run at once in this process."""

    @property
    def database(self) -> Database:
        """The database, publishing the jobs that handlers enqueue."""

    def once(self, make: Callable[[Any], Part]) -> Part:
        """Give what `make` makes of this context, made with the first call in a process."""

    def when_stopping(self, act: Callable[[], object]) -> None:
        """Do something when the process is asked to end."""

    def wake(self, queue: str) -> None:
        """Have the consumers of a queue, if this process has any, look for work now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """How one kind of job is done."""

    kind: str
    queue: str
    run: Callable[[Any], int]
    """Does what is due with the worker's context; returns how much that was."""
    every_seconds: float | None
    """How often beat sends it; None for a job that only an event sends."""
    budget_seconds: float
    """How long it may keep a thread before it is sent for again behind whatever else waits."""
    in_parallel: bool
    """Whether several threads of a process may do it at once; otherwise a second message makes up for later."""


HANDLERS: dict[str, Handler] = {}
"""Those of the modules that have been imported, by kind."""


def handles(
    job: type[Job],
    *,
    every_seconds: float | None = None,
    budget_seconds: float = BUDGET_SECONDS,
    in_parallel: bool = False,
) -> Callable[[Run], Run]:
    """Declare the function that does every job of a class; with an interval beat sends the job as well."""
    return _declare(job.kind, job.queue, every_seconds, budget_seconds, in_parallel=in_parallel)


def sweep(
    kind: str,
    *,
    queue: str,
    every_seconds: float,
    budget_seconds: float = BUDGET_SECONDS,
    in_parallel: bool = False,
) -> Callable[[Run], Run]:
    """Declare a function that beat has called at an interval, and nobody else."""
    return _declare(kind, queue, every_seconds, budget_seconds, in_parallel=in_parallel)


def _declare(
    kind: str, queue: str, every_seconds: float | None, budget_seconds: float, *, in_parallel: bool
) -> Callable[[Run], Run]:
    def declare(run: Run) -> Run:
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
