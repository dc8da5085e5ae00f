"""Post each update of a task to those who asked for it: one delivery per configuration, in the update's transaction.

The outbox (`shared/deliveries`) sends them one after the other, so that a receiver sees them in order while none
fails.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import select

from shared.a2a.exact_json import render
from shared.a2a.tables import task_push_configurations
from shared.database import Session
from shared.deliveries.outbox import MAX_BODY_BYTES, enqueue_delivery

KIND = "task_update"
CONTENT_TYPE = "application/a2a+json"
ATTEMPTS = 6


def deliver(session: Session, task_id: UUID, organization_id: UUID, event: Mapping[str, Any]) -> None:
    """Hand an event, as streams send it, to the outbox for every configuration of its task."""
    statement = select(
        task_push_configurations.c.destination_id, task_push_configurations.c.address_encrypted
    ).where(task_push_configurations.c.task_id == task_id)
    name, body = next(iter(event)), render(event).encode()
    if len(body) > MAX_BODY_BYTES:
        body = render(_notice(event)).encode()
    for row in session.execute(statement).all():
        enqueue_delivery(
            session,
            kind=KIND,
            event=name,
            destination_id=row.destination_id,
            organization_id=organization_id,
            body=body,
            content_type=CONTENT_TYPE,
            sealed_address=row.address_encrypted,
            in_flight_limit=1,
            attempt_limit=ATTEMPTS,
        )


def _notice(event: Mapping[str, Any]) -> dict[str, Any]:
    """Say of an update that is too large to post which task it belongs to, so that the receiver asks for it."""
    update = next(iter(event.values()))
    status = {"state": update.get("status", {}).get("state", "TASK_STATE_WORKING")}
    return {"task": {"id": update["taskId"], "contextId": update["contextId"], "status": status}}
