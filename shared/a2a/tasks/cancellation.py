"""Cancel a task. Readers see this at once, and the worker of the task stops within half a second.

The cancellation ends the worker's lease. The worker notices this at its next write or heartbeat, and writes no later
update. Artifacts are folded before the task is locked, because an agent may have written thousands of events.
"""

from uuid import UUID

from shared.a2a.agents.directory import Scope
from shared.a2a.errors import TaskNotCancelable, TaskNotFound
from shared.a2a.tasks.artifacts import Folded
from shared.a2a.tasks.events import Ending, find_and_lock_task, record
from shared.a2a.tasks.snapshots import find_snapshot
from shared.a2a.turn_state.rows import TurnOutcome
from shared.a2a.types import Task, TaskState
from shared.a2a.updates import StatusChanged
from shared.db.database import Session


def cancel_task(session: Session, scope: Scope, task_id: UUID) -> Task:
    """Cancel a task and return it. Raises TaskNotFound, TaskNotCancelable."""
    before = find_snapshot(session, scope, task_id, history_length=0)
    if before is None:
        raise TaskNotFound
    folded = Folded(artifacts=before.task.artifacts, sequence=before.sequence)
    # `record` folds the events that were written since the snapshot, under the lock.
    task = find_and_lock_task(session, task_id)
    if task is None:
        raise TaskNotFound
    if task.state.is_terminal:
        raise TaskNotCancelable
    # No turn writes this update (`own` is None), so all turns of the task end as canceled.
    ending = Ending(own=None, others=TurnOutcome.CANCELED)
    record(session, task, [StatusChanged(state=TaskState.CANCELED)], ending=ending, folded=folded)
    snapshot = find_snapshot(session, scope, task_id)
    if snapshot is None:
        raise TaskNotFound
    return snapshot.task
