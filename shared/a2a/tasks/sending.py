"""Take a message for an agent: find or make its task, write down what was said, and queue the turn.

One transaction: when it has committed, the message will be answered, whatever dies. A message for a task that still
works waits for its turn; one for a task that has ended is refused. A message that names no task makes one, which its
client sees as a task only once the agent treats it as one (`Replied` makes none), or if the client does not wait.
Ids of messages are no keys: clients use them again.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import func, insert, select, update

from shared import failpoints
from shared.a2a.agents.callers import OnBehalf
from shared.a2a.agents.directory import SKILL_KEY, Agent, Scope
from shared.a2a.errors import InvalidParams, TaskNotFound, UnsupportedOperation
from shared.a2a.idempotency import claim_key, hash_request
from shared.a2a.identifiers import check_identifier, find_task_id
from shared.a2a.media_types import require_readable
from shared.a2a.push.configurations import PushConfigurations
from shared.a2a.tables import task_turns, tasks
from shared.a2a.tasks.events import HeldTask, add_message, belonging, find_and_hold_task, record_status
from shared.a2a.tasks.snapshots import Snapshot, in_scope, new_snapshot, read_snapshot
from shared.a2a.turns.rows import count_turns_before, insert_turn
from shared.a2a.turns.updates import StatusChanged
from shared.a2a.types import Message, SendMessageConfiguration, SendMessageRequest, TaskState
from shared.database import Session
from shared.errors import FieldError
from shared.identity.callers import Caller
from shared.ids import new_id

WAITING_TURNS_LIMIT = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """A message and all that came with it."""

    request: SendMessageRequest
    agent: Agent
    scope: Scope
    caller: Caller
    active_extensions: Collection[str] = ()
    idempotency_key: str | None = None

    @property
    def message(self) -> Message:
        """What is said."""
        return self.request.message

    @property
    def configuration(self) -> SendMessageConfiguration:
        """How the client wants to be answered."""
        return self.request.configuration or SendMessageConfiguration()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A message that was taken: its turn, its task as it was then, and whether the client may see that task yet.

    `is_replay` says that it was taken before, so that its answer may be there already. `turns_before` are the turns of
    its task that were to end before its own begins.
    """

    turn_id: UUID
    task_id: UUID
    snapshot: Snapshot
    is_visible: bool
    is_replay: bool
    turns_before: int = 0


def send(session: Session, sending: Sending, pushes: PushConfigurations) -> Sent:
    """Accept a message, or find that it was accepted before under its Idempotency-Key.

    Raises TaskNotFound, UnsupportedOperation, InvalidParams, ContentTypeNotSupported, IdempotencyKeyReused, and what
    `PushConfigurations.create` raises.
    """
    _check_identifiers(sending)
    turn_id = new_id()
    if sending.idempotency_key is not None:
        digest = hash_request(sending.request, sending.active_extensions)
        first_id = claim_key(session, sending.scope, sending.idempotency_key, digest, turn_id)
        if first_id != turn_id:
            return _sent_before(session, sending, first_id)
    behavior = sending.agent.choose_behavior((sending.message.metadata or {}).get(SKILL_KEY))
    require_readable(sending.message, behavior)
    task = _hold_task(session, sending) if sending.message.task_id else _make_task(session, sending)
    message = belonging(sending.message, task)
    number = add_message(session, task.id, message)
    _queue_turn(session, sending, task, turn_id=turn_id, number=number, behavior_id=behavior.id)
    push = sending.configuration.task_push_notification_config
    if push is not None:
        pushes.create(session, task.id, push)
    failpoints.hit("send.before_commit")
    if sending.message.task_id:
        return _sent(session, sending, turn_id, task.id, is_replay=False)
    return Sent(
        turn_id=turn_id,
        task_id=task.id,
        snapshot=new_snapshot(task, message, history_length=sending.configuration.history_length),
        is_visible=task.is_visible,
        is_replay=False,
    )


def show_task(session: Session, task_id: UUID) -> bool:
    """Let the client see a task whose agent has not said yet whether it is one, because the client waits no longer.

    Tell whether it is to be seen: not if the agent has answered without a task meanwhile.
    """
    is_pending = tasks.c.state.in_([TaskState.SUBMITTED, TaskState.WORKING])
    shown = update(tasks).where(tasks.c.id == task_id, is_pending | tasks.c.is_visible)
    return session.execute(shown.values(is_visible=True)).rowcount > 0


def _check_identifiers(sending: Sending) -> None:
    check_identifier("message.messageId", sending.message.message_id)
    if sending.message.context_id is not None:
        check_identifier("message.contextId", sending.message.context_id)
    if sending.idempotency_key is not None:
        check_identifier("Idempotency-Key", sending.idempotency_key, location="header")


def _hold_task(session: Session, sending: Sending) -> HeldTask:
    """Lock the task that the message belongs to, and let it wait for its agent again."""
    task_id = find_task_id(sending.message.task_id or "")
    condition = (tasks.c.id == task_id, *in_scope(sending.scope), tasks.c.is_visible)
    if session.execute(select(tasks.c.id).where(*condition)).one_or_none() is None or task_id is None:
        raise TaskNotFound
    task = find_and_hold_task(session, task_id)
    if task is None:
        raise TaskNotFound
    if task.state.is_terminal:
        raise UnsupportedOperation("The task has ended and takes no more messages; begin another.")
    if sending.message.context_id not in (None, task.context_id):
        message = "is not the context of this task"
        raise InvalidParams(errors=[FieldError(location="body", name="message.contextId", message=message)])
    unfinished = select(func.count()).where(task_turns.c.task_id == task.id, task_turns.c.state != "done")
    waiting = session.execute(unfinished).scalar_one()
    if waiting >= WAITING_TURNS_LIMIT:
        raise UnsupportedOperation(
            "As many messages wait for this task as may; send more when it has answered."
        )
    if not waiting:
        record_status(session, task, StatusChanged(state=TaskState.SUBMITTED))
    return task


def _make_task(session: Session, sending: Sending) -> HeldTask:
    """Make a task, which nobody else can see before the commit and which therefore needs no lock."""
    scope = sending.scope
    values: dict[str, Any] = {
        "id": new_id(),
        "context_id": sending.message.context_id or str(new_id()),
        "organization_id": sending.agent.organization_id,
        "deployment_id": scope.deployment_id,
        "caller_id": scope.caller_id,
        "principal_id": scope.principal_id,
        "state": TaskState.SUBMITTED,
        "is_visible": bool(sending.configuration.return_immediately),
    }
    now = func.date_trunc("milliseconds", func.clock_timestamp())
    made = insert(tasks).values(**values, status_at=now).returning(tasks.c.status_at, tasks.c.created_at)
    row = session.execute(made).one()
    return HeldTask(**values, last_sequence=0, created_at=row.created_at, now=row.status_at)


def _queue_turn(
    session: Session, sending: Sending, task: HeldTask, *, turn_id: UUID, number: int, behavior_id: UUID
) -> None:
    on_behalf = OnBehalf.of(sending.caller, transaction_id=str(turn_id))
    modes = list(sending.configuration.accepted_output_modes)
    insert_turn(
        session,
        id=turn_id,
        task_id=task.id,
        message=number,
        behavior_id=behavior_id,
        request={"metadata": sending.request.metadata or {}, "acceptedOutputModes": modes},
        active_extensions=sorted(sending.active_extensions),
        owner_id=on_behalf.owner_id,
        payer_id=on_behalf.payer_id,
        deployment_id=task.deployment_id,
        distribution_id=on_behalf.distribution_id,
        transaction_id=on_behalf.transaction_id,
        reported_caller=on_behalf.reported_caller,
    )


def _sent_before(session: Session, sending: Sending, turn_id: UUID) -> Sent:
    task_id = session.execute(select(task_turns.c.task_id).where(task_turns.c.id == turn_id)).scalar()
    if task_id is None:
        raise TaskNotFound("The task of this Idempotency-Key is kept no longer.")
    if find_and_hold_task(session, task_id) is None:
        raise TaskNotFound
    if sending.configuration.return_immediately:
        show_task(session, task_id)
    return _sent(session, sending, turn_id, task_id, is_replay=True)


def _sent(session: Session, sending: Sending, turn_id: UUID, task_id: UUID, *, is_replay: bool) -> Sent:
    """Say what was taken; the task's row is locked, so that all of it is of one moment."""
    snapshot = read_snapshot(session, task_id, history_length=sending.configuration.history_length)
    is_visible = session.execute(select(tasks.c.is_visible).where(tasks.c.id == task_id)).scalar_one()
    return Sent(
        turn_id=turn_id,
        task_id=task_id,
        snapshot=snapshot,
        is_visible=is_visible,
        is_replay=is_replay,
        turns_before=count_turns_before(session, turn_id),
    )
