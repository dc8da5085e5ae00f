"""Enqueue each update of a task for its push configurations, in the update's transaction.

The outbox (`shared/deliveries`) sends the deliveries of a configuration in order: after a failure, later deliveries
wait. Each delivery has the number of its event in the task's log. Streams use the same number as the event's id.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import select

from shared.a2a.exact_json import render
from shared.a2a.tables import task_push_configurations, tasks
from shared.db.database import Session
from shared.deliveries.outbox import MAX_BODY_BYTES, enqueue_delivery

KIND = "task_update"
CONTENT_TYPE = "application/a2a+json"
ATTEMPTS = 6


def deliver(
    session: Session, task_id: UUID, organization_id: UUID, event: Mapping[str, Any], *, followers: int = 0
) -> None:
    """Enqueue an event, as streams send it, for each push configuration of its task.

    `followers` events of the same transaction come after it in the task's log.
    """
    statement = (
        select(
            task_push_configurations.c.destination_id,
            task_push_configurations.c.address_encrypted,
            (tasks.c.last_sequence - followers).label("sequence"),
        )
        .join(tasks, tasks.c.id == task_push_configurations.c.task_id)
        .where(task_push_configurations.c.task_id == task_id)
    )
    name, body = next(iter(event)), render(event).encode()
    # Replace an event that is too large, because a truncated event would be invalid JSON.
    if len(body) > MAX_BODY_BYTES:
        body = render(notice_of(event)).encode()
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
            attempt_limit=ATTEMPTS,
            ordered=True,
            sequence=row.sequence,
        )


def notice_of(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return a short replacement for an update that is too large to post. The receiver then reads the task."""
    update = next(iter(event.values()))
    status = {"state": update.get("status", {}).get("state", "TASK_STATE_WORKING")}
    return {"task": {"id": update["taskId"], "contextId": update["contextId"], "status": status}}
