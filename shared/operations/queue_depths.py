"""Measure the pending work of every domain, for commands and for the metrics by which operators scale workers."""

from dataclasses import dataclass

from shared.a2a.agent_turns.backlog import measure_turns
from shared.db.database import Session
from shared.deliveries.backlog import measure_deliveries
from shared.files.backlog import Backlog, measure_backlog
from shared.media.importing.backlog import measure_imports


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingWork:
    """The backlog of each kind of work, and the number of dead deliveries."""

    backlogs: tuple[Backlog, ...]
    dead_deliveries: int


def measure_waiting_work(session: Session) -> WaitingWork:
    """Count the pending rows in Postgres."""
    imports, turn_backlog = measure_imports(session), measure_turns(session)
    deliveries = measure_deliveries(session)
    return WaitingWork(
        backlogs=(
            *measure_backlog(session),
            # Each domain measures its own tables; the label is part of the metric's wire name.
            Backlog(state="imports", rows=imports.due, oldest_seconds=imports.oldest_due_seconds),
            Backlog(state="turns", rows=turn_backlog.waiting, oldest_seconds=turn_backlog.oldest_seconds),
            Backlog(state="deliveries", rows=deliveries.due, oldest_seconds=deliveries.oldest_due_seconds),
        ),
        dead_deliveries=deliveries.dead,
    )
