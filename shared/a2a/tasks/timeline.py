"""A task as a timeline for people: messages, states, artifacts, and the model calls of its agent with their cost.

A timeline has the newest `MAX_ENTRIES` entries of each kind, and no text longer than `MAX_ENTRY_BYTES`. Callers read
their own tasks. With `TaskRead` they read the tasks of all agents of their organization. Any other task is reported as
not found.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select, text

from shared.a2a.agents.directory import DeploymentScope, own_scope
from shared.a2a.errors import TaskNotFound
from shared.a2a.exact_json import parse
from shared.a2a.tables import tasks
from shared.a2a.tasks.administration import ListedTask, read_listed
from shared.a2a.tasks.snapshots import find_snapshot
from shared.a2a.turn_state.rows import calls_of
from shared.a2a.types import Artifact, Message, MessageRole, TaskState
from shared.credits.usage.usage_records import UsageRecord, find_usage_records
from shared.db.database import Session
from shared.db.schema import columns_of
from shared.identity.access.callers import Caller
from shared.identity.access.permissions import Permission

MAX_ENTRIES = 100
MAX_ENTRY_BYTES = 64 << 10
"""A message or event that is longer is listed without its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEntry:
    """A message of the task. `message` is None if the message is too long to show."""

    at: datetime
    message: Message | None

    @property
    def is_from_agent(self) -> bool:
        """Whether the agent wrote the message."""
        return self.message is not None and self.message.role is MessageRole.AGENT


@dataclass(frozen=True, slots=True, kw_only=True)
class StateEntry:
    """A change of the task's state."""

    at: datetime
    state: TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactEntry:
    """An artifact, with the time of its first event."""

    at: datetime
    artifact: Artifact


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallEntry:
    """A call of a model by the agent's behavior."""

    at: datetime
    record: UsageRecord


Entry = MessageEntry | StateEntry | ArtifactEntry | ModelCallEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A task and its entries in order.

    `is_own` means that the reader may send messages to the task. `is_cut` means that older entries are left out.
    """

    task: ListedTask
    entries: Sequence[Entry]
    cost: int
    calls: int
    is_own: bool
    is_cut: bool


def read_timeline(session: Session, *, caller: Caller, task_id: UUID) -> Timeline:
    """Return the timeline of a task. Raises TaskNotFound."""
    task = find_task(session, caller=caller, task_id=task_id)
    # Read events before messages. A message is written before the event of its state, so the message of each state that
    # was read is found.
    event_rows = session.execute(
        _EVENTS, {"task": task_id, "most": MAX_ENTRIES, "longest": MAX_ENTRY_BYTES}
    ).all()
    message_rows = session.execute(
        _MESSAGES, {"task": task_id, "most": MAX_ENTRIES, "longest": MAX_ENTRY_BYTES}
    ).all()
    turn_ids = session.execute(_TURNS, {"task": task_id, "most": MAX_ENTRIES}).scalars().all()
    records = find_usage_records(
        session, task.organization_id, [call for turn_id in turn_ids for call in calls_of(turn_id)]
    )
    events = [(row.created_at, parse(row.event)) for row in event_rows if row.event is not None]
    entries: list[Entry] = [
        *(_message_entry(row) for row in message_rows),
        *(
            StateEntry(at=at, state=TaskState(event["statusUpdate"]["status"]["state"]))
            for at, event in events
            if "statusUpdate" in event
        ),
        *_artifact_entries(session, task, events),
        *(ModelCallEntry(at=record.occurred_at, record=record) for record in records),
    ]
    return Timeline(
        task=task,
        # If a state and a message have the same time, the message comes first, because it belongs to the state.
        entries=sorted(entries, key=lambda entry: (entry.at, isinstance(entry, StateEntry))),
        cost=sum(record.cost for record in records),
        calls=len(records),
        is_own=_is_own(caller, task),
        is_cut=MAX_ENTRIES in (len(message_rows), len(event_rows), len(turn_ids)),
    )


def find_task(session: Session, *, caller: Caller, task_id: UUID) -> ListedTask:
    """Return a task that a caller may read. Raises TaskNotFound."""
    row = session.execute(
        select(*columns_of(ListedTask, tasks)).where(tasks.c.id == task_id, tasks.c.is_visible)
    ).one_or_none()
    if row is None:
        raise TaskNotFound
    task = read_listed(row)
    permissions = caller.permissions_on(organization_id=task.organization_id)
    may_read = Permission.TASK_READ in permissions or (
        Permission.MODEL_EXECUTE in permissions and _is_own(caller, task)
    )
    # Report the task as not found, so that a caller cannot learn which ids of other organizations exist.
    if caller.organization_id != task.organization_id or not may_read:
        raise TaskNotFound
    return task


def _is_own(caller: Caller, task: ListedTask) -> bool:
    own = own_scope(caller, task.deployment_id)
    return (task.caller_id, task.principal_id) == (own.caller_id, own.principal_id)


def _message_entry(row: Any) -> MessageEntry:
    message = Message.model_validate(parse(row.message)) if row.message is not None else None
    return MessageEntry(at=row.created_at, message=message)


def _artifact_entries(
    session: Session, task: ListedTask, events: Sequence[tuple[datetime, Mapping[str, Any]]]
) -> Sequence[ArtifactEntry]:
    began: dict[str, datetime] = {}
    for at, event in events:
        if "artifactUpdate" in event:
            # Keep the time of the artifact's first event: later events append to the artifact.
            began.setdefault(event["artifactUpdate"]["artifact"]["artifactId"], at)
    scope = DeploymentScope(deployment_id=task.deployment_id)
    snapshot = find_snapshot(session, scope, task.id, history_length=0)
    made = snapshot.task.artifacts[-MAX_ENTRIES:] if snapshot is not None else ()
    return [ArtifactEntry(at=began.get(each.artifact_id, task.status_at), artifact=each) for each in made]


_MESSAGES = text("""
SELECT created_at, CASE WHEN octet_length(message) <= :longest THEN message END AS message
FROM (SELECT * FROM task_messages WHERE task_id = :task ORDER BY number DESC LIMIT :most) AS newest ORDER BY number
""")
_EVENTS = text("""
SELECT created_at, CASE WHEN octet_length(event) <= :longest THEN event END AS event
FROM (SELECT * FROM task_events WHERE task_id = :task AND kind <> 'message' ORDER BY sequence DESC LIMIT :most)
AS newest ORDER BY sequence
""")
_TURNS = text("SELECT id FROM task_turns WHERE task_id = :task ORDER BY id DESC LIMIT :most")
