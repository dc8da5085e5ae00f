"""Write the events of a task. Each event is one row, and its number is its place in the order that all readers see.

A change of a task must lock the task's row before any other row of the task. So events are numbered without gaps, and
a status never overtakes an earlier artifact. `record` locks the row in the same statement that writes the events
(`sql/record_updates.sql`). A caller that decides by the task's state locks the row before this decision. No event
follows a terminal state: `shared/a2a/agent_turns/task_log.py` and other callers check the state before they write.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import select

from shared.a2a.exact_json import render
from shared.a2a.push.deliveries import deliver
from shared.a2a.push.distribution_updates import notify_distribution
from shared.a2a.tables import tasks
from shared.a2a.tasks.artifacts import NOTHING_FOLDED, Folded, fold, read_artifact_events
from shared.a2a.turn_state.leases import LEASE_SECONDS
from shared.a2a.turn_state.rows import AnswerTurn, TurnOutcome
from shared.a2a.types import Message, TaskState
from shared.a2a.updates import ArtifactProduced, Replied, StatusChanged, Update
from shared.a2a.wire import render_instant
from shared.db.database import Session

# The database sets the time of an event under the lock of the task's row, so times and events have the same order.
_CLOCK = uuid4().hex
"""Placeholder in a status for the time that the database writes; random, so that no client can send it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskKey:
    """The ids of a task that its events and deliveries carry."""

    id: UUID
    context_id: str
    organization_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedTask(TaskKey):
    """A task with its state, read by the transaction that has locked its row."""

    state: TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """The turn that writes updates, with its lease and the number of its updates in the log.

    `written` is None if this service makes the updates and not the agent. Such updates are not counted. `has_artifacts`
    is False if the task certainly has no artifact.
    """

    turn_id: UUID
    lease_id: UUID
    written: int | None
    has_artifacts: bool = True


class Result(StrEnum):
    """The result of writing updates (`sql/record_updates.sql` defines each value)."""

    WRITTEN = "written"
    LOST = "lost"
    REPEATED = "repeated"
    VISIBLE = "visible"
    FOLLOWED = "followed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The outcomes with which turns of a task end when an update is written.

    `own` is the outcome of the turn that writes the update. `others` is the outcome of the task's other turns. If `own`
    is None, all turns end with `others`. If `others` is None, the other turns continue.
    """

    own: TurnOutcome | None
    others: TurnOutcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    kind: str
    wire: dict[str, Any]
    message: Message | None = None


_TASK = select(tasks.c.id, tasks.c.context_id, tasks.c.organization_id, tasks.c.state)
LOCK_TIMEOUT_MS = 20
"""How long the thread that writes for many tasks waits for a lock on one of them."""
_RECORD = """
SELECT * FROM record_updates(
    p_task => %(task)s, p_turn => %(turn)s, p_lease => %(lease)s, p_lease_seconds => %(lease_seconds)s,
    p_written => %(written)s, p_has_spoken => %(has_spoken)s, p_kinds => %(kinds)s::text[],
    p_events => %(events)s::text[], p_messages => %(messages)s::text[], p_clock => %(clock)s, p_state => %(state)s,
    p_status_message => %(status_message)s, p_artifacts => %(artifacts)s, p_outcome => %(outcome)s,
    p_others => %(others)s, p_is_posted => %(is_posted)s
)
"""
# An argument is evaluated before the function begins, so the timeout applies to the function's lock. The setting ends
# with the transaction.
_UNLESS_LOCKED = f"(SELECT %(task)s::uuid FROM set_config('lock_timeout', '{LOCK_TIMEOUT_MS}ms', true))"  # noqa: S608 (a constant)
_RECORD_UNLESS_LOCKED = _RECORD.replace("%(task)s", _UNLESS_LOCKED)


def find_and_lock_task(session: Session, task_id: UUID, *, skip_locked: bool = False) -> LockedTask | None:
    """Lock a task's row until the transaction ends, and return the task. Return None if the task does not exist.

    With `skip_locked`, also return None if another transaction holds the lock.
    """
    statement = _TASK.where(tasks.c.id == task_id).with_for_update(skip_locked=skip_locked)
    row = session.execute(statement).one_or_none()
    return LockedTask(**row._asdict() | {"state": TaskState(row.state)}) if row is not None else None


def record(
    session: Session,
    task: TaskKey,
    updates: Sequence[Update],
    *,
    writer: Writer | None = None,
    ending: Ending | None = None,
    hidden_state: TaskState | None = None,
    may_post: bool = True,
    may_wait: bool = True,
    folded: Folded = NOTHING_FOLDED,
) -> Result:
    """Write updates in order, and end the turns that `ending` names.

    Call this function in a transaction. If `may_post` is False, the function needs one statement only; if a subscriber
    must get the updates, it writes nothing and returns FOLLOWED. If `updates` is empty and the client does not see the
    task, the task's state becomes `hidden_state`. Raises LockTimeout if another transaction keeps the task locked:
    after the usual timeout, or if `may_wait` is False, after `LOCK_TIMEOUT_MS`. With a terminal state, the folded
    artifacts are stored. A caller that has locked the task passes the artifacts that it has already `folded`, to keep
    the lock short.
    """
    entries = [_entry(task, update) for update in updates]
    values = _task_values(task, updates, entries) | _turn_values(updates, writer, ending)
    values |= {"state": values["state"] or hidden_state, "is_posted": may_post, "artifacts": None}
    if updates and isinstance(updates[-1], StatusChanged) and updates[-1].state.is_terminal:
        stored: Iterable[Mapping[str, Any]] = ()
        if writer is None or writer.has_artifacts:
            stored = read_artifact_events(session, task.id, after_sequence=folded.sequence)
        # Store the artifacts with the last event, because retention deletes the events.
        values["artifacts"] = _fold_artifacts(stored, entries, folded)
    row = session.fetch_one(_RECORD if may_wait else _RECORD_UNLESS_LOCKED, values)
    assert row is not None  # noqa: S101 (the function always returns one row)
    result = Result(row.result)
    if result is Result.WRITTEN:
        # Enqueue in the same transaction, so that a subscriber gets exactly the updates that were committed.
        if row.is_followed:
            turn_id = writer.turn_id if writer is not None else None
            _post(session, task, entries, row.recorded_at, turn_id)
        # The turn has ended and the next turn of the task is ready, so wake the workers.
        if row.next_turn is not None:
            session.enqueue(AnswerTurn())
    return result


def with_task_ids(message: Message, task: TaskKey) -> Message:
    """Return a copy of the message that has the ids of this task and its context."""
    return message.model_copy(update={"task_id": str(task.id), "context_id": task.context_id})


def _entry(task: TaskKey, update: Update) -> _Entry:
    if isinstance(update, Replied):
        # A reply belongs to no task that the client sees, so it must not name one.
        reply = update.message.model_copy(update={"context_id": task.context_id, "task_id": None})
        return _Entry(kind="message", wire={"message": reply.to_wire()}, message=reply)
    event: dict[str, Any] = {"taskId": str(task.id), "contextId": task.context_id}
    message = None
    if isinstance(update, ArtifactProduced):
        event |= {
            "artifact": update.artifact.to_wire(),
            "append": update.append,
            "lastChunk": update.last_chunk,
        }
    else:
        message = with_task_ids(update.message, task) if update.message is not None else None
        shown = {"message": message.to_wire()} if message is not None else {}
        event["status"] = {"state": update.state.value, **shown, "timestamp": _CLOCK}
    if update.metadata is not None:
        event["metadata"] = dict(update.metadata)
    if isinstance(update, ArtifactProduced):
        return _Entry(kind="artifact", wire={"artifactUpdate": event})
    return _Entry(kind="status", wire={"statusUpdate": event}, message=message)


def _task_values(task: TaskKey, updates: Sequence[Update], entries: Sequence[_Entry]) -> dict[str, Any]:
    """Return the values for the task's row, among them which new message belongs to the task's status."""
    state, status_message, message_count = None, None, 0
    for update, entry in zip(updates, entries, strict=True):
        message_count += entry.message is not None
        if not isinstance(update, ArtifactProduced):
            state = TaskState.COMPLETED if isinstance(update, Replied) else update.state
            status_message = message_count if entry.message is not None else None
    return {
        "task": task.id,
        "kinds": [entry.kind for entry in entries],
        "events": [render(entry.wire) for entry in entries],
        "messages": [render(entry.message.to_wire()) if entry.message else None for entry in entries],
        "clock": _CLOCK,
        "state": state,
        "status_message": status_message,
    }


def _fold_artifacts(stored: Iterable[Mapping[str, Any]], entries: Sequence[_Entry], folded: Folded) -> str:
    """Return the artifacts of a task that ends, as JSON, from its stored events and the new ones."""
    added = [entry.wire for entry in entries if entry.kind == "artifact"]
    return render([artifact.to_wire() for artifact in fold([*stored, *added], onto=folded.artifacts)])


def _turn_values(updates: Sequence[Update], writer: Writer | None, ending: Ending | None) -> dict[str, Any]:
    return {
        "turn": writer.turn_id if writer is not None else None,
        "lease": writer.lease_id if writer is not None else None,
        "lease_seconds": LEASE_SECONDS,
        "written": writer.written if writer is not None else None,
        "has_spoken": writer is not None and writer.written is not None and any(map(_has_content, updates)),
        "outcome": ending.own if ending is not None else None,
        "others": ending.others if ending is not None else None,
    }


def _has_content(update: Update) -> bool:
    """Return whether an update is more than a bare WORKING status."""
    return (
        not isinstance(update, StatusChanged)
        or update.state is not TaskState.WORKING
        or update.message is not None
    )


def _post(
    session: Session,
    task: TaskKey,
    entries: Sequence[_Entry],
    recorded_at: datetime,
    turn_id: UUID | None,
) -> None:
    """Enqueue the deliveries of updates to push subscribers, and to the distribution that sent the task's message."""
    # `followers` counts the events after this event in the batch. A delivery subtracts it from the number of the task's
    # last event to get its own number.
    for followers, entry in zip(reversed(range(len(entries))), entries, strict=True):
        # Subscribers must see the time that the database wrote, so replace the placeholder.
        if entry.kind == "status":
            entry.wire["statusUpdate"]["status"]["timestamp"] = render_instant(recorded_at)
        if entry.kind != "message":
            deliver(session, task.id, task.organization_id, entry.wire, followers=followers)
            notify_distribution(session, task.id, entry.wire, turn_id=turn_id, followers=followers)
