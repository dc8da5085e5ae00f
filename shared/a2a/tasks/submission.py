"""Accept a message for an agent: find or create its task, store the message, and queue a turn.

All rows are written in one transaction. After its commit the agent answers the message even if processes die. A message
for a task that is working waits in the task's queue. A message for a task that has ended is refused. A message without
a task id creates a task. The client sees this task only if the agent produces more than one reply, or if the client
does not wait. Message ids do not detect repeated requests, because clients reuse message ids.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import func, select, update

from shared import failpoints
from shared.a2a.agents.callers import CHANNEL, OnBehalf
from shared.a2a.agents.directory import SKILL_KEY, Agent, Scope
from shared.a2a.errors import InvalidParams, TaskNotFound, UnsupportedOperation
from shared.a2a.exact_json import render
from shared.a2a.idempotency import claim_key, hash_request
from shared.a2a.identifiers import check_identifier, find_task_id
from shared.a2a.media_types import require_readable
from shared.a2a.push.configurations import PushConfigurations
from shared.a2a.tables import task_turns, tasks
from shared.a2a.tasks.events import TaskKey, find_and_lock_task, record, with_task_ids
from shared.a2a.tasks.snapshots import Snapshot, in_scope, new_snapshot, read_snapshot
from shared.a2a.turn_state.rows import AnswerTurn, count_turns_before
from shared.a2a.types import Message, MessageRole, SendMessageConfiguration, SendMessageRequest, TaskState
from shared.a2a.updates import StatusChanged
from shared.db.database import Database, Session
from shared.errors import FieldError
from shared.identity.access.callers import Caller
from shared.ids import new_id

# Limits the queue of one task, because a task runs its turns one at a time.
PENDING_TURNS_LIMIT = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSubmission:
    """A message, its request, and the caller and agent that it concerns."""

    request: SendMessageRequest
    agent: Agent
    scope: Scope
    caller: Caller
    requested_extensions: Collection[str] = ()
    active_extensions: Collection[str] = ()
    # A callable and not a result, because the checks are skipped for a repeated request.
    check_with_agent: Callable[[], None] = lambda: None
    """Checks the message against the agent's current state. It is not called for a repeated request."""
    idempotency_key: str | None = None
    channel: str = CHANNEL
    turn_id: UUID = field(default_factory=new_id)
    new_task_id: UUID = field(default_factory=new_id)
    """The id of the task that the message creates, if it creates one."""

    @property
    def task_id(self) -> UUID:
        """The id of the task that the message names or creates. A repeated request may have created another task."""
        return find_task_id(self.message.task_id or "") or self.new_task_id

    @property
    def message(self) -> Message:
        """The message of the request."""
        return self.request.message

    @property
    def configuration(self) -> SendMessageConfiguration:
        """The client's wishes for the response."""
        return self.request.configuration or SendMessageConfiguration()


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedMessage:
    """An accepted message: its turn, a snapshot of its task, and whether the client may see the task yet.

    The snapshot and the later response have the history length that the client requested. `is_replay` means that an
    earlier request with the same Idempotency-Key was accepted, so the response may exist already. `turns_before`
    counts the unfinished turns of the task that run before this turn.
    """

    turn_id: UUID
    task_id: UUID
    snapshot: Snapshot
    is_visible: bool
    is_replay: bool
    turns_before: int = 0
    history_length: int | None = None


def accept(database: Database, submission: MessageSubmission, pushes: PushConfigurations) -> AcceptedMessage:
    """Accept a message in a new transaction. A message that creates a task needs one statement only.

    Raises the errors of `send`.
    """
    with database.autocommit() if _is_plain(submission) else database.transaction() as session:
        return send(session, submission, pushes)


def send(session: Session, submission: MessageSubmission, pushes: PushConfigurations) -> AcceptedMessage:
    """Accept a message, or return the result of an earlier request with the same Idempotency-Key.

    A repeated request is not checked against the agent's current state. Raises TaskNotFound, UnsupportedOperation,
    InvalidParams, ContentTypeNotSupported, IdempotencyKeyReused, and what `check_with_agent` and
    `PushConfigurations.create` raise.
    """
    _check_message(submission)
    if submission.idempotency_key is not None:
        digest = hash_request(submission.request, submission.requested_extensions)
        first_id = claim_key(
            session, submission.scope, submission.idempotency_key, digest, submission.turn_id
        )
        # Claim the key before the other checks: a repeated request must succeed even if the agent has changed.
        if first_id != submission.turn_id:
            return _accepted_before(session, submission, first_id)
    submission.check_with_agent()
    behavior = submission.agent.choose_behavior((submission.message.metadata or {}).get(SKILL_KEY))
    require_readable(submission.message, behavior)
    accepted = (_continue if submission.message.task_id else _begin)(session, submission, behavior.id)
    push = submission.configuration.task_push_notification_config
    if push is not None:
        pushes.create(session, accepted.task_id, push)
    return accepted


def show_task(session: Session, task_id: UUID) -> bool:
    """Make a task visible to its client. Return False if the agent has meanwhile replied without a task.

    Call this function if the client stops waiting before the agent has decided between a task and a message.
    """
    is_pending = tasks.c.state.in_([TaskState.SUBMITTED, TaskState.WORKING])
    shown = update(tasks).where(tasks.c.id == task_id, is_pending | tasks.c.is_visible)
    return session.execute(shown.values(is_visible=True)).rowcount > 0


def _check_message(submission: MessageSubmission) -> None:
    if submission.message.role is not MessageRole.USER:
        message = "must be ROLE_USER: only the agent writes its own messages"
        raise InvalidParams(errors=[FieldError(location="body", name="message.role", message=message)])
    check_identifier("message.messageId", submission.message.message_id)
    if submission.message.context_id is not None:
        check_identifier("message.contextId", submission.message.context_id)
    if submission.idempotency_key is not None:
        check_identifier("Idempotency-Key", submission.idempotency_key, location="header")


def _is_plain(submission: MessageSubmission) -> bool:
    """Return whether the request writes only a new task, its message and its turn, so that one statement suffices."""
    push = submission.configuration.task_push_notification_config
    return not submission.message.task_id and submission.idempotency_key is None and push is None


def _begin(session: Session, submission: MessageSubmission, behavior_id: UUID) -> AcceptedMessage:
    """Create the task of a first message. No lock is needed: other transactions see the task only after the commit."""
    task = TaskKey(
        id=submission.new_task_id,
        context_id=submission.message.context_id or str(new_id()),
        organization_id=submission.agent.organization_id,
    )
    message = with_task_ids(submission.message, task)
    is_visible = bool(submission.configuration.return_immediately)
    values = {
        "context_id": task.context_id,
        "organization_id": task.organization_id,
        "caller_id": submission.scope.caller_id,
        "principal_id": submission.scope.principal_id,
        "is_visible": is_visible,
    }
    row = _write(session, _BEGIN, submission, task.id, message, behavior_id, values)
    return AcceptedMessage(
        turn_id=submission.turn_id,
        task_id=task.id,
        snapshot=new_snapshot(
            task, message, at=row.status_at, history_length=submission.configuration.history_length
        ),
        is_visible=is_visible,
        is_replay=False,
        history_length=submission.configuration.history_length,
    )


def _continue(session: Session, submission: MessageSubmission, behavior_id: UUID) -> AcceptedMessage:
    """Add a message to an existing task and queue a turn for it."""
    task_id = find_task_id(submission.message.task_id or "")
    condition = (tasks.c.id == task_id, *in_scope(submission.scope), tasks.c.is_visible)
    # Check the access before the lock, so that a caller cannot lock tasks of other callers.
    if session.execute(select(tasks.c.id).where(*condition)).one_or_none() is None or task_id is None:
        raise TaskNotFound
    # Check the state under the lock, because the task may end at any moment.
    task = find_and_lock_task(session, task_id)
    if task is None:
        raise TaskNotFound
    if task.state.is_terminal:
        raise UnsupportedOperation(
            "The task has ended and accepts no more messages. Send the message without a task id to start a new task."
        )
    if submission.message.context_id not in (None, task.context_id):
        message = "is not the context of this task"
        raise InvalidParams(errors=[FieldError(location="body", name="message.contextId", message=message)])
    unfinished = select(func.count()).where(task_turns.c.task_id == task.id, task_turns.c.state != "done")
    pending = session.execute(unfinished).scalar_one()
    if pending >= PENDING_TURNS_LIMIT:
        raise UnsupportedOperation(
            f"The task has reached its limit of {PENDING_TURNS_LIMIT} pending messages. Retry after the agent answers."
        )
    # With turns pending, the log resubmits the task when its next turn begins.
    if not pending:
        record(session, task, [StatusChanged(state=TaskState.SUBMITTED)])
    new_message = with_task_ids(submission.message, task)
    _write(session, _CONTINUE, submission, task.id, new_message, behavior_id, {"is_next": not pending})
    return _accepted(session, submission, submission.turn_id, task.id, is_replay=False)


def _write(
    session: Session,
    statement: str,
    submission: MessageSubmission,
    task_id: UUID,
    message: Message,
    behavior_id: UUID,
    values: dict[str, Any],
) -> Any:
    """Store a message and its turn, and enqueue the wake-up job for workers."""
    on_behalf = OnBehalf.of(submission.caller, transaction_id=str(submission.turn_id))
    modes = list(submission.configuration.accepted_output_modes)
    request = {"metadata": submission.request.metadata or {}, "acceptedOutputModes": modes}
    if submission.channel != CHANNEL:
        # Store the channel only if it is not the default.
        request["channel"] = submission.channel
    reported = on_behalf.reported_caller
    turn = {
        "turn_id": submission.turn_id,
        "task_id": task_id,
        "said": render(message.to_wire()),
        "behavior_id": behavior_id,
        "request": render(request),
        "active_extensions": sorted(submission.active_extensions),
        "owner_id": on_behalf.owner_id,
        "payer_id": on_behalf.payer_id,
        "deployment_id": submission.scope.deployment_id,
        "distribution_id": on_behalf.distribution_id,
        "transaction_id": on_behalf.transaction_id,
        "reported_caller": render(reported) if reported is not None else None,
    }
    failpoints.hit("send.before_commit")
    row = session.fetch_one(statement, turn | values)
    session.enqueue(AnswerTurn())
    return row


def _accepted_before(session: Session, submission: MessageSubmission, turn_id: UUID) -> AcceptedMessage:
    task_id = session.execute(select(task_turns.c.task_id).where(task_turns.c.id == turn_id)).scalar()
    if task_id is None:
        raise TaskNotFound("The task that this Idempotency-Key created has been deleted by retention.")
    # Lock the task, so that its snapshot and its visibility are of the same moment.
    if find_and_lock_task(session, task_id) is None:
        raise TaskNotFound
    if submission.configuration.return_immediately:
        show_task(session, task_id)
    return _accepted(session, submission, turn_id, task_id, is_replay=True)


def _accepted(
    session: Session, submission: MessageSubmission, turn_id: UUID, task_id: UUID, *, is_replay: bool
) -> AcceptedMessage:
    """Return the accepted message. The caller has locked the task, so all values are of the same moment."""
    snapshot = read_snapshot(session, task_id, history_length=submission.configuration.history_length)
    is_visible = session.execute(select(tasks.c.is_visible).where(tasks.c.id == task_id)).scalar_one()
    return AcceptedMessage(
        turn_id=turn_id,
        task_id=task_id,
        snapshot=snapshot,
        is_visible=is_visible,
        is_replay=is_replay,
        turns_before=count_turns_before(session, turn_id),
        history_length=submission.configuration.history_length,
    )


# Used for a new task and for a locked task. `is_next` is true if no unfinished turn of the task comes before this turn.
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
