"""Take a message for an agent: find or make its task, write down what was said, and queue the turn.

One transaction: when it has committed, the message will be answered, whatever dies. A message for a task that still
works waits for its turn; one for a task that has ended is refused. A message that names no task makes one, which its
client sees as a task only once the agent treats it as one (`Replied` makes none), or if the client does not wait.
Ids of messages are no keys: clients use them again.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import func, select, update

from shared import failpoints
from shared.a2a.agent_turns.rows import AnswerTurn, count_turns_before
from shared.a2a.agent_turns.updates import StatusChanged
from shared.a2a.agents.callers import CHANNEL, OnBehalf
from shared.a2a.agents.directory import SKILL_KEY, Agent, Scope
from shared.a2a.errors import InvalidParams, TaskNotFound, UnsupportedOperation
from shared.a2a.exact_json import render
from shared.a2a.idempotency import claim_key, hash_request
from shared.a2a.identifiers import check_identifier, find_task_id
from shared.a2a.media_types import require_readable
from shared.a2a.push.configurations import PushConfigurations
from shared.a2a.tables import task_turns, tasks
from shared.a2a.tasks.events import TaskKey, belonging, find_and_hold_task, record
from shared.a2a.tasks.snapshots import Snapshot, in_scope, new_snapshot, read_snapshot
from shared.a2a.types import Message, MessageRole, SendMessageConfiguration, SendMessageRequest, TaskState
from shared.db.database import Database, Session
from shared.errors import FieldError
from shared.identity.access.callers import Caller
from shared.ids import new_id

WAITING_TURNS_LIMIT = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """A message and all that came with it."""

    request: SendMessageRequest
    agent: Agent
    scope: Scope
    caller: Caller
    requested_extensions: Collection[str] = ()
    active_extensions: Collection[str] = ()
    check_with_agent: Callable[[], None] = lambda: None
    """What else is asked of the message by the agent as it is now; not asked where the message was taken before."""
    idempotency_key: str | None = None
    channel: str = CHANNEL
    turn_id: UUID = field(default_factory=new_id)
    new_task_id: UUID = field(default_factory=new_id)
    """The id of the task that the message makes, if it makes one."""

    @property
    def task_id(self) -> UUID:
        """The task of the message, unless it was taken before under its key."""
        return find_task_id(self.message.task_id or "") or self.new_task_id

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

    The snapshot has as much of the history as the client asked for, `history_length`, and so has an answer.
    `is_replay` says that it was taken before, so that its answer may be there already. `turns_before` are the turns of
    its task that were to end before its own begins.
    """

    turn_id: UUID
    task_id: UUID
    snapshot: Snapshot
    is_visible: bool
    is_replay: bool
    turns_before: int = 0
    history_length: int | None = None


def accept(database: Database, sending: Sending, pushes: PushConfigurations) -> Sent:
    """Accept a message in a transaction of its own, the first of a task by one statement. Raises what `send` does."""
    with database.autocommit() if _is_plain(sending) else database.transaction() as session:
        return send(session, sending, pushes)


def send(session: Session, sending: Sending, pushes: PushConfigurations) -> Sent:
    """Accept a message, or find that it was accepted before under its Idempotency-Key, however its agent is now.

    Raises TaskNotFound, UnsupportedOperation, InvalidParams, ContentTypeNotSupported, IdempotencyKeyReused, and what
    `check_with_agent` and `PushConfigurations.create` raise.
    """
    _check_message(sending)
    if sending.idempotency_key is not None:
        digest = hash_request(sending.request, sending.requested_extensions)
        first_id = claim_key(session, sending.scope, sending.idempotency_key, digest, sending.turn_id)
        if first_id != sending.turn_id:
            return _sent_before(session, sending, first_id)
    sending.check_with_agent()
    behavior = sending.agent.choose_behavior((sending.message.metadata or {}).get(SKILL_KEY))
    require_readable(sending.message, behavior)
    sent = (_continue if sending.message.task_id else _begin)(session, sending, behavior.id)
    push = sending.configuration.task_push_notification_config
    if push is not None:
        pushes.create(session, sent.task_id, push)
    return sent


def show_task(session: Session, task_id: UUID) -> bool:
    """Let the client see a task whose agent has not said yet whether it is one, because the client waits no longer.

    Tell whether it is to be seen: not if the agent has answered without a task meanwhile.
    """
    is_pending = tasks.c.state.in_([TaskState.SUBMITTED, TaskState.WORKING])
    shown = update(tasks).where(tasks.c.id == task_id, is_pending | tasks.c.is_visible)
    return session.execute(shown.values(is_visible=True)).rowcount > 0


def _check_message(sending: Sending) -> None:
    if sending.message.role is not MessageRole.USER:
        message = "must be ROLE_USER: what the agent says is the agent's to write"
        raise InvalidParams(errors=[FieldError(location="body", name="message.role", message=message)])
    check_identifier("message.messageId", sending.message.message_id)
    if sending.message.context_id is not None:
        check_identifier("message.contextId", sending.message.context_id)
    if sending.idempotency_key is not None:
        check_identifier("Idempotency-Key", sending.idempotency_key, location="header")


def _is_plain(sending: Sending) -> bool:
    """Tell whether nothing is written but a new task, its message and its turn."""
    push = sending.configuration.task_push_notification_config
    return not sending.message.task_id and sending.idempotency_key is None and push is None


def _begin(session: Session, sending: Sending, behavior_id: UUID) -> Sent:
    """Make a task of its first message; nobody else can see it before the commit, so it needs no lock."""
    task = TaskKey(
        id=sending.new_task_id,
        context_id=sending.message.context_id or str(new_id()),
        organization_id=sending.agent.organization_id,
    )
    message = belonging(sending.message, task)
    is_visible = bool(sending.configuration.return_immediately)
    values = {
        "context_id": task.context_id,
        "organization_id": task.organization_id,
        "caller_id": sending.scope.caller_id,
        "principal_id": sending.scope.principal_id,
        "is_visible": is_visible,
    }
    row = _write(session, _BEGIN, sending, task.id, message, behavior_id, values)
    return Sent(
        turn_id=sending.turn_id,
        task_id=task.id,
        snapshot=new_snapshot(
            task, message, at=row.status_at, history_length=sending.configuration.history_length
        ),
        is_visible=is_visible,
        is_replay=False,
        history_length=sending.configuration.history_length,
    )


def _continue(session: Session, sending: Sending, behavior_id: UUID) -> Sent:
    """Add a message to a task, and let it wait for its agent again."""
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
        record(session, task, [StatusChanged(state=TaskState.SUBMITTED)])
    said = belonging(sending.message, task)
    _write(session, _CONTINUE, sending, task.id, said, behavior_id, {"is_next": not waiting})
    return _sent(session, sending, sending.turn_id, task.id, is_replay=False)


def _write(
    session: Session,
    statement: str,
    sending: Sending,
    task_id: UUID,
    message: Message,
    behavior_id: UUID,
    values: dict[str, Any],
) -> Any:
    """Write a message and its turn, and send the hint that it waits."""
    on_behalf = OnBehalf.of(sending.caller, transaction_id=str(sending.turn_id))
    modes = list(sending.configuration.accepted_output_modes)
    request = {"metadata": sending.request.metadata or {}, "acceptedOutputModes": modes}
    if sending.channel != CHANNEL:
        request["channel"] = sending.channel
    reported = on_behalf.reported_caller
    turn = {
        "turn_id": sending.turn_id,
        "task_id": task_id,
        "said": render(message.to_wire()),
        "behavior_id": behavior_id,
        "request": render(request),
        "active_extensions": sorted(sending.active_extensions),
        "owner_id": on_behalf.owner_id,
        "payer_id": on_behalf.payer_id,
        "deployment_id": sending.scope.deployment_id,
        "distribution_id": on_behalf.distribution_id,
        "transaction_id": on_behalf.transaction_id,
        "reported_caller": render(reported) if reported is not None else None,
    }
    failpoints.hit("send.before_commit")
    row = session.fetch_one(statement, turn | values)
    session.enqueue(AnswerTurn())
    return row


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
        history_length=sending.configuration.history_length,
    )


# Of a new task, and of one whose row is held. `is_next` tells whether no other turn of the task is before this one.
_WRITE = """
said AS (
    INSERT INTO task_messages (task_id, number, message) SELECT id, last_message, %(said)s FROM task
), turn AS (
    INSERT INTO task_turns (id, task_id, message, behavior_id, request, active_extensions, owner_id, payer_id,
        deployment_id, distribution_id, transaction_id, reported_caller, state, is_next)
    SELECT %(turn_id)s, id, last_message, %(behavior_id)s, %(request)s, %(active_extensions)s, %(owner_id)s,
        %(payer_id)s, %(deployment_id)s, %(distribution_id)s, %(transaction_id)s, %(reported_caller)s, 'queued',
        is_next
    FROM task
)
SELECT status_at FROM task
"""
_BEGIN = f"""
WITH task AS (
    INSERT INTO tasks (id, context_id, organization_id, deployment_id, caller_id, principal_id, state, status_at,
        is_visible, last_message)
    VALUES (%(task_id)s, %(context_id)s, %(organization_id)s, %(deployment_id)s, %(caller_id)s, %(principal_id)s,
        'TASK_STATE_SUBMITTED', date_trunc('milliseconds', clock_timestamp()), %(is_visible)s, 1)
    RETURNING id, last_message, status_at, true AS is_next
), {_WRITE}"""  # noqa: S608 (a constant of this module)
_CONTINUE = f"""
WITH task AS (
    UPDATE tasks SET last_message = last_message + 1 WHERE id = %(task_id)s
    RETURNING id, last_message, status_at, %(is_next)s AS is_next
), {_WRITE}"""  # noqa: S608 (a constant of this module)
