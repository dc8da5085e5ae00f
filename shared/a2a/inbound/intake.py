"""Accept the messages of distributions. Each message is recorded once, and is sent at once unless it must wait."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from shared import failpoints
from shared.a2a.errors import TaskNotFound
from shared.a2a.inbound.errors import MessageRefused, TooManyMessages
from shared.a2a.inbound.forwarder import MessageForwarder, find_waiting_task, scope_of_receiver
from shared.a2a.inbound.messages import (
    DistributionMessage,
    InboundMessage,
    MessageState,
    await_imports_of,
    context_of,
    count_waiting,
    get_message,
    get_repeated,
    insert_message,
    is_behind,
)
from shared.a2a.tasks.events import find_and_lock_task
from shared.a2a.tasks.snapshots import read_snapshot
from shared.a2a.tasks.submission import AcceptedMessage
from shared.a2a.turn_state.rows import count_turns_before
from shared.db.database import Session
from shared.identity.access.permissions import Permission
from shared.identity.authentication.distribution_lookup import LiveReceiver
from shared.media.importing.authority import UNPROVEN, Proof, authorize_message, require_executor
from shared.media.importing.import_queue import queue_imports
from shared.media.importing.imports import Import, find_imports, get_pushed_import
from shared.media.importing.pending_attachments import RouteMessages, await_imports


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeResult:
    """The result of a push: the message's record, its imports, and the accepted message if this push sent it."""

    message: DistributionMessage
    imports: Sequence[Import]
    sent: AcceptedMessage | None
    is_new: bool

    @property
    def outcome(self) -> str:
        """The outcome for the metrics, in one word."""
        return self.message.state.lower() if self.is_new else "replayed"


def receive_message(
    session: Session,
    forwarder: MessageForwarder,
    message: InboundMessage,
    *,
    distribution_id: UUID,
    proof: Proof = UNPROVEN,
) -> IntakeResult:
    """Accept a message in the caller's transaction, or return the record of an earlier push.

    Raises MessageConflict, ImportNotFound, TooManyMessages, and the errors of `authorize_message`, `queue_imports` and
    `MessageForwarder.send`.
    """
    receiver = authorize_message(session, distribution_id, proof)
    # The agent will read the files, so its service account needs the permission.
    if message.attachments:
        require_executor(receiver, Permission.FILE_READ)
    made = _insert(session, receiver, message)
    if made is None:
        repeated = get_repeated(session, distribution_id, message)
        return IntakeResult(
            message=repeated, imports=find_imports(session, repeated.imports), sent=None, is_new=False
        )
    imports = _import(session, forwarder, receiver, message)
    ids = [imported.id for imported in imports]
    if ids:
        made = await_imports_of(session, made, ids, wait_seconds=forwarder.settings.message_wait_seconds)
    sent = None
    if await_imports(session, ids) or is_behind(session, made):
        # Count after the insert, so that the count includes this message. The error rolls the insert back.
        _refuse_excess(session, receiver, forwarder.settings.queued_imports)
        session.enqueue(RouteMessages())
    else:
        sent = forwarder.send(session, receiver, made)
    failpoints.hit("message.before_commit")
    return IntakeResult(message=get_message(session, made.id), imports=imports, sent=sent, is_new=True)


def receive_network_message(
    session: Session,
    forwarder: MessageForwarder,
    message: InboundMessage,
    *,
    distribution_id: UUID,
    imports: Sequence[UUID],
) -> bool:
    """Accept a message of a network's webhook, with its imports. Return False if it was accepted before.

    A worker sends it to the agent and records a refusal, because the network would repeat a refused webhook. Raises
    TooManyMessages, and the errors of `authorize_message`.
    """
    receiver = authorize_message(session, distribution_id)
    made = _insert(session, receiver, message)
    if made is None:
        return False
    if await_imports(session, imports):
        await_imports_of(session, made, imports, wait_seconds=forwarder.settings.message_wait_seconds)
    # The imports of all attachments have already ended, so do not wait: a worker sends the message at once.
    elif imports:
        await_imports_of(session, made, imports, wait_seconds=0.0)
    _refuse_excess(session, receiver, forwarder.settings.queued_imports)
    session.enqueue(RouteMessages())
    return True


def _import(
    session: Session, forwarder: MessageForwarder, receiver: LiveReceiver, message: InboundMessage
) -> Sequence[Import]:
    """Queue the imports of a message's attachments.

    An attachment without a location must have been pushed before. Raises ImportNotFound otherwise.
    """
    if not message.attachments:
        return ()
    new = [at for at in message.attachments if at.location]
    queued = (
        queue_imports(
            session,
            forwarder.settings,
            distribution_id=receiver.distribution_id,
            network=message.network,
            attachments=new,
            secret_headers=message.secret_headers,
        )
        if new
        else ()
    )
    by_id = {imported.attachment_id: imported for imported in queued}
    return [
        by_id.get(at.attachment_id)
        or get_pushed_import(
            session,
            distribution_id=receiver.distribution_id,
            network=message.network,
            message_id=at.message_id,
            attachment_id=at.attachment_id,
        )
        for at in message.attachments
    ]


def _refuse_excess(session: Session, receiver: LiveReceiver, limit: int) -> None:
    """Raise TooManyMessages if more than `limit` messages of the distribution are waiting."""
    if count_waiting(session, receiver.distribution_id, limit=limit + 1) > limit:
        raise TooManyMessages


def _insert(session: Session, receiver: LiveReceiver, message: InboundMessage) -> DistributionMessage | None:
    context_id = context_of(receiver.distribution_id, message)
    task_id = find_waiting_task(session, scope_of_receiver(receiver), context_id)
    return insert_message(session, receiver, message, continued_task_id=task_id)


def get_routed(session: Session, message: DistributionMessage) -> AcceptedMessage:
    """Return the accepted message of a record. The task is locked, so that all values are of the same moment.

    The stream of a push uses this, and the push may be a repeated push. Raises MessageRefused if the message was
    refused, and TaskNotFound if retention has deleted the task.
    """
    if message.state is MessageState.REFUSED:
        raise MessageRefused(f"The message could not be sent to the agent ({message.code}).")
    if message.turn_id is None or find_and_lock_task(session, message.task_id) is None:
        raise TaskNotFound
    return AcceptedMessage(
        turn_id=message.turn_id,
        task_id=message.task_id,
        snapshot=read_snapshot(session, message.task_id, history_length=None),
        is_visible=True,
        is_replay=True,
        turns_before=count_turns_before(session, message.turn_id),
    )
