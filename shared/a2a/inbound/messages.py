"""Store the messages that distributions receive. The record of a message ensures that it is routed once.

Distribution, network and message id are a unique key, so repeated pushes of a message have one record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid5

from sqlalchemy import ColumnElement, func, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert

from shared.a2a.exact_json import render
from shared.a2a.inbound.errors import MessageConflict
from shared.a2a.inbound.tables import distribution_messages
from shared.db.database import Session
from shared.db.schema import columns_of
from shared.errors import ServiceUnavailable
from shared.files.idempotency import hash_request
from shared.identity.access.claims import ReportedCaller
from shared.identity.authentication.distribution_lookup import LiveReceiver
from shared.ids import new_id
from shared.media.attachments import Attachment
from shared.media.importing.descriptions import hash_description
from shared.media.importing.imports import STANDARD

_table = distribution_messages.c


class MessageState(StrEnum):
    """The state of a message; the values are part of the API."""

    WAITING = "Waiting"
    ROUTED = "Routed"
    REFUSED = "Refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundMessage:
    """A message that a distribution pushes, or that the webhook of a network contains.

    `channel` is the reported origin of the message. `extensions` are activated if the agent declares them.
    """

    network: str
    message_id: str
    conversation_id: str | None = None
    text: str | None = field(default=None, repr=False)
    attachments: Sequence[Attachment] = ()
    secret_headers: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    channel: str | None = None
    reported_caller: ReportedCaller | None = None
    extensions: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributionMessage:
    """The record of a message. `imports` are the ids of the imports of its attachments, in order."""

    id: UUID
    distribution_id: UUID
    organization_id: UUID
    network: str
    message_id: str
    conversation_id: str | None
    context_id: str
    request: Mapping[str, Any] | None = field(repr=False)
    """The content to send, or None after the message was routed or refused."""
    imports: tuple[UUID, ...]
    state: MessageState
    code: str | None
    task_id: UUID
    """The id of the message's task. The task may not exist before the message is routed."""
    turn_id: UUID | None
    created_at: datetime


def insert_message(
    session: Session, receiver: LiveReceiver, message: InboundMessage, *, continued_task_id: UUID | None
) -> DistributionMessage | None:
    """Insert the record of a waiting message. Return None if the message was recorded before."""
    reported = message.reported_caller
    values = {
        "id": new_id(),
        "distribution_id": receiver.distribution_id,
        "organization_id": receiver.organization_id,
        "network": message.network,
        "message_id": message.message_id,
        "conversation_id": message.conversation_id,
        "context_id": context_of(receiver.distribution_id, message),
        "request": {
            "text": message.text,
            "channel": message.channel or message.network,
            "reportedCaller": {"id": reported.id, "display": reported.display} if reported else None,
            "extensions": list(message.extensions),
        },
        "request_hash": _hash(message),
        "imports": [],
        "state": MessageState.WAITING.value,
        "task_id": continued_task_id or new_id(),
    }
    # A concurrent push of the same message waits here until the first commits, and then inserts nothing.
    made = insert(distribution_messages).values(values).on_conflict_do_nothing().returning(*_COLUMNS)
    row = session.execute(made).one_or_none()
    return None if row is None else read_message(row)


def get_repeated(session: Session, distribution_id: UUID, message: InboundMessage) -> DistributionMessage:
    """Return the record of a message that was pushed before.

    Raises MessageConflict if the earlier message had other content, except for native networks: they create unique ids,
    so an edited message has the id of the original message.
    """
    statement = select(*_COLUMNS, _table.request_hash).where(
        _table.distribution_id == distribution_id,
        _table.network == message.network,
        _table.message_id == message.message_id,
    )
    row = session.execute(statement).one_or_none()
    # Retention can delete the record between the insert that found it and this select.
    if row is None:
        raise ServiceUnavailable("The record of an earlier push has just been deleted. Retry.")
    # Senders of standard pushes choose the ids, so report a reused id with other content as a mistake.
    if message.network == STANDARD and bytes(row.request_hash) != _hash(message):
        raise MessageConflict
    return read_message(row)


def get_message(session: Session, message_id: UUID) -> DistributionMessage:
    """Return a record by its own id."""
    return read_message(session.execute(select(*_COLUMNS).where(_table.id == message_id)).one())


def mark_routed(
    session: Session, message: DistributionMessage, *, task_id: UUID, turn_id: UUID, kept_days: int
) -> None:
    """Record that the agent was sent a message, and delete its content."""
    _end(session, message, kept_days, state=MessageState.ROUTED.value, task_id=task_id, turn_id=turn_id)


def mark_refused(session: Session, message: DistributionMessage, *, code: str, kept_days: int) -> None:
    """Record that the agent cannot be sent a message, and delete its content."""
    _end(session, message, kept_days, state=MessageState.REFUSED.value, code=code)


def await_imports_of(
    session: Session, message: DistributionMessage, imports: Sequence[UUID], *, wait_seconds: float
) -> DistributionMessage:
    """Make a message wait for its attachments, at most `wait_seconds`."""
    values = {
        "imports": list(imports),
        "due_at": func.now() + func.make_interval(0, 0, 0, 0, 0, 0, wait_seconds),
    }
    session.execute(update(distribution_messages).where(_table.id == message.id).values(values))
    return replace(message, imports=tuple(imports))


def is_behind(session: Session, message: DistributionMessage) -> bool:
    """Return whether an earlier message of the conversation is waiting."""
    earlier = select(_table.id).where(
        _table.distribution_id == message.distribution_id,
        _table.context_id == message.context_id,
        _table.state == MessageState.WAITING.value,
        is_earlier(_table, message),
    )
    return session.execute(earlier.limit(1)).one_or_none() is not None


def is_earlier(one: Any, other: Any) -> ColumnElement[bool]:
    """Return the SQL condition that message `one` arrived before message `other`, by the database's clock.

    The ids alone do not show the order, because several web processes create ids.
    """
    return tuple_(one.created_at, one.id) < tuple_(other.created_at, other.id)


def count_waiting(session: Session, distribution_id: UUID, *, limit: int) -> int:
    """Return the number of waiting messages of a distribution, up to `limit`."""
    waiting = select(_table.id).where(
        _table.distribution_id == distribution_id, _table.state == MessageState.WAITING.value
    )
    # Stop at the limit: a count of all rows would grow with the backlog.
    counted = select(func.count()).select_from(waiting.limit(limit).subquery())
    return int(session.execute(counted).scalar_one())


def context_of(distribution_id: UUID, message: InboundMessage) -> str:
    """Return the A2A context of a message's conversation. A message without a conversation gets its own context."""
    # The words "message" and "conversation" keep the contexts apart, because a message and a conversation may have the
    # same id.
    if message.conversation_id is None:
        return str(uuid5(distribution_id, render([message.network, "message", message.message_id])))
    return str(uuid5(distribution_id, render([message.network, "conversation", message.conversation_id])))


def read_message(row: Any) -> DistributionMessage:
    """Return the message record in a row of the table."""
    values = {column.key: getattr(row, column.key) for column in _COLUMNS}
    return DistributionMessage(**{**values, "state": MessageState(row.state), "imports": tuple(row.imports)})


def _end(session: Session, message: DistributionMessage, kept_days: int, **values: Any) -> None:
    ended = {
        # Delete the content here: from now on only the task stores it, so the task's retention applies.
        "request": None,
        "ended_at": func.now(),
        "forget_at": func.now() + func.make_interval(0, 0, 0, kept_days),
    }
    session.execute(update(distribution_messages).where(_table.id == message.id).values({**ended, **values}))


def _hash(message: InboundMessage) -> bytes:
    reported = message.reported_caller
    return hash_request(
        text=message.text,
        conversation_id=message.conversation_id,
        channel=message.channel,
        reported_caller=json.dumps([reported.id, reported.display]) if reported else None,
        extensions=list(message.extensions),
        attachments=[[at.attachment_id, hash_description(at).hex()] for at in message.attachments],
    )


_COLUMNS = columns_of(DistributionMessage, distribution_messages)
