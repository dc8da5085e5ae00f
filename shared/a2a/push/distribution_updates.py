"""Notify a distribution about the task of its message: of every event, in order, through its notification endpoint.

A notification has the event in the form of streams, and the ids of the message and the conversation. It is enqueued in
the transaction that writes the event. When the notification is sent, `link_files` replaces the addresses of files by
links, so the outbox contains no secret.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import text

from shared.a2a.exact_json import parse, render
from shared.a2a.file_links import FileLinks
from shared.a2a.push.deliveries import notice_of
from shared.db.database import Session
from shared.deliveries.outbox import MAX_BODY_BYTES
from shared.media.importing.import_notifications import EventType, notify

ENVELOPE_BYTES = 16 << 10
"""The number of bytes that is reserved for the other members of a notification."""
# Selects the distribution's message of the turn that writes. Without such a message, selects the task's last message.
_MESSAGE = text(
    """
SELECT tasks.distribution_id, tasks.context_id, tasks.last_sequence - :followers AS sequence,
    message.network, message.message_id, message.conversation_id
FROM tasks LEFT JOIN LATERAL (
    SELECT network, message_id, conversation_id FROM distribution_messages
    WHERE task_id = tasks.id AND state = 'Routed'
    ORDER BY turn_id = CAST(:turn AS uuid) DESC NULLS LAST, id DESC LIMIT 1
) message ON true
WHERE tasks.id = :task AND tasks.distribution_id IS NOT NULL
"""
)


def notify_distribution(
    session: Session, task_id: UUID, event: Mapping[str, Any], *, turn_id: UUID | None, followers: int
) -> None:
    """Enqueue an event for the task's distribution, if the task has a distribution with an endpoint.

    `followers` events of the same transaction come after it in the task's log.
    """
    values = {"task": task_id, "turn": turn_id, "followers": followers}
    row = session.execute(_MESSAGE, values).one_or_none()
    if row is None:
        return
    update: Mapping[str, Any] = event
    if len(render(event).encode()) > MAX_BODY_BYTES - ENVELOPE_BYTES:
        update = notice_of(event)
    data = {
        "network": row.network,
        "messageId": row.message_id,
        "conversationId": row.conversation_id,
        "taskId": str(task_id),
        "contextId": row.context_id,
        "sequence": row.sequence,
        "update": update,
    }
    notify(
        session,
        distribution_id=row.distribution_id,
        type=EventType.MESSAGE_UPDATE,
        data=data,
        sequence=row.sequence,
        render=render,
    )


def link_files(session: Session, links: FileLinks, body: bytes) -> bytes:
    """Return the body of a notification with links instead of file addresses. Return other bodies unchanged."""
    text = body.decode()
    if not links.may_contain_files(text):
        return body
    # Parse the body only if it may contain the address of a file, because most bodies do not.
    notification = parse(text)
    if notification.get("type") != EventType.MESSAGE_UPDATE.value:
        return body
    data = notification["data"]
    linked = links.with_links_in(session, UUID(data["taskId"]), data["update"])
    return render({**notification, "data": {**data, "update": linked}}).encode()
