"""Dispatch messages when their attachments have arrived, or are overdue.

One transaction locks a message, sends it to the agent and records the result. Messages are selected round robin among
organizations. A message waits for earlier messages of its conversation. It also waits for its attachments, but at most
`MESSAGE_WAIT_SECONDS`; then the message names the missing attachments. If a message cannot be sent to the agent, the
message is refused and the distribution is notified.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Row, bindparam, func, select, text, update

from shared import failpoints
from shared.a2a.inbound.forwarder import MessageForwarder
from shared.a2a.inbound.messages import DistributionMessage, is_earlier, mark_refused, read_message
from shared.a2a.inbound.tables import distribution_messages
from shared.a2a.tasks.router import Router
from shared.db.database import Database, Session
from shared.errors import DomainError, ServiceUnavailable
from shared.fairness.fair_queueing import first_of_each, select_round_robin
from shared.media.importing.authority import authorize_message
from shared.media.importing.import_notifications import EventType, notify
from shared.media.importing.pending_attachments import RouteMessages, has_waiting
from shared.messaging.jobs import Context, handles
from shared.observability.telemetry import MESSAGES, get_logger
from shared.runtime.batches import drain

log = get_logger(__name__)

BATCH_SIZE = 20
RECHECK_SECONDS = 5.0
"""When a message behind another is checked again; the end of the other one triggers an earlier check."""
_table = distribution_messages.c


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDispatcher:
    """The database and the forwarder for waiting messages."""

    database: Database
    forwarder: MessageForwarder


@handles(RouteMessages, every_seconds=5, in_parallel=True)
def _route_due(context: Context) -> int:
    return route_due_messages(context.once(_make_dispatcher))


def _make_dispatcher(context: Context) -> MessageDispatcher:
    forwarder = MessageForwarder(settings=context.settings, router=Router.of(context.settings))
    return MessageDispatcher(database=context.database, forwarder=forwarder)


def route_due_messages(dispatcher: MessageDispatcher) -> int:
    """Dispatch the messages that are due, and return how many messages were checked."""

    def batch() -> int:
        with dispatcher.database.transaction() as session:
            # Commit before the scan, so that the scan finds the messages that ended imports make due.
            session.execute(_NOTE_ENDED)
        with dispatcher.database.autocommit() as session:
            due = select_round_robin(session, oldest=_OLDEST, fair=_FAIR, limit=BATCH_SIZE)
        return sum(_route_if_due(dispatcher, message_id) for message_id in due)

    return drain(batch, size=BATCH_SIZE)


def _route_if_due(dispatcher: MessageDispatcher, message_id: UUID) -> bool:
    """Dispatch one message. Return False if it is no longer due, or another process has it."""
    with dispatcher.database.transaction() as session:
        row = session.execute(_DUE, {"id": message_id}).one_or_none()
        if row is None:
            return False
        message = read_message(row)
        if not _postpone(session, dispatcher, row, message):
            _route(session, dispatcher, message)
            # No message of the conversation is before the next one any more, so make the next message due.
            session.execute(_NEXT, {"distribution": message.distribution_id, "context": message.context_id})
        failpoints.hit("message.before_routed")
    failpoints.hit("message.routed")
    return True


def _postpone(
    session: Session, dispatcher: MessageDispatcher, row: Row[Any], message: DistributionMessage
) -> bool:
    """Return whether the message must wait. If so, set the time of its next check."""
    if row.is_behind:
        again = func.now() + func.make_interval(0, 0, 0, 0, 0, 0, RECHECK_SECONDS)
    elif row.age_seconds < (
        wait_seconds := dispatcher.forwarder.settings.message_wait_seconds
    ) and has_waiting(session, message.imports):
        again = _table.created_at + func.make_interval(0, 0, 0, 0, 0, 0, wait_seconds)
    else:
        return False
    session.execute(update(distribution_messages).where(_table.id == message.id).values(due_at=again))
    return True


def _route(session: Session, dispatcher: MessageDispatcher, message: DistributionMessage) -> None:
    """Send a message to its agent. If this is not possible, record the message as refused, with the reason."""
    try:
        # Use a savepoint, so that a refusal undoes the sending but can still be recorded.
        with session.connection.begin_nested():
            receiver = authorize_message(session, message.distribution_id)
            dispatcher.forwarder.send(session, receiver, message)
    except ServiceUnavailable:
        raise  # the transaction is repeated
    except DomainError as error:
        _refuse(session, dispatcher, message, error.code)
    except Exception:  # one message must not block all others
        log.exception("message.broken", message_id=str(message.id))
        _refuse(session, dispatcher, message, "internal_error")
    else:
        MESSAGES.labels(message.network, "routed").inc()


def _refuse(session: Session, dispatcher: MessageDispatcher, message: DistributionMessage, code: str) -> None:
    log.info("message.refused", message_id=str(message.id), error=code)
    MESSAGES.labels(message.network, "refused").inc()
    mark_refused(session, message, code=code, kept_days=dispatcher.forwarder.settings.media_record_days)
    data = {
        "network": message.network,
        "messageId": message.message_id,
        "conversationId": message.conversation_id,
        "code": code,
    }
    notify(session, distribution_id=message.distribution_id, type=EventType.MESSAGE_REFUSED, data=data)


# Lock rows in the order of their ids to avoid deadlocks: another process may handle imports of the same messages.
_NOTE_ENDED = text(
    """
WITH ended AS (
    UPDATE media_imports SET is_awaited = false WHERE id = ANY (ARRAY(
        SELECT id FROM media_imports WHERE is_awaited AND ended_at IS NOT NULL LIMIT 1000 FOR UPDATE SKIP LOCKED
    ))
    RETURNING distribution_id, network, message_id
), due AS (
    SELECT message.id FROM distribution_messages message JOIN ended USING (distribution_id, network, message_id)
    WHERE message.state = 'Waiting' ORDER BY message.id FOR UPDATE OF message
)
UPDATE distribution_messages SET due_at = now() WHERE id IN (SELECT id FROM due)
"""
)
_OLDEST = text(
    """
SELECT id FROM distribution_messages WHERE state = 'Waiting' AND due_at <= now() ORDER BY due_at LIMIT :limit
"""
)
_HEADS = first_of_each(
    table="distribution_messages", tenant="organization_id", ready="state = 'Waiting'", order="due_at"
)
_FAIR = text(f"SELECT id FROM ({_HEADS}) due ORDER BY place, random() LIMIT :limit")  # noqa: S608
_NEXT = text(
    """
UPDATE distribution_messages SET due_at = now() WHERE id = (
    SELECT id FROM distribution_messages
    WHERE distribution_id = :distribution AND context_id = :context AND state = 'Waiting'
    ORDER BY created_at, id LIMIT 1
)
"""
)
_earlier = distribution_messages.alias("earlier")
_DUE = (
    select(
        distribution_messages,
        func.extract("epoch", func.now() - _table.created_at).label("age_seconds"),
        select(_earlier.c.id)
        .where(
            _earlier.c.distribution_id == _table.distribution_id,
            _earlier.c.context_id == _table.context_id,
            _earlier.c.state == "Waiting",
            is_earlier(_earlier.c, _table),
        )
        .exists()
        .label("is_behind"),
    )
    .where(_table.id == bindparam("id"), _table.state == "Waiting", _table.due_at <= func.now())
    .with_for_update(of=distribution_messages, skip_locked=True)
)
