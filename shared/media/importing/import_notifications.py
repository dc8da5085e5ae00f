"""Notify a distribution when an import has ended or a file with imported media has expired.

The transaction that causes an event also writes its notification. So every event is sent at least once, and no event
is sent if the transaction was rolled back. Each stored file has a row in `expiring_media` until its deadline, so its
expiry is notified once, even if the sweep runs late.
"""

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, func, select, text

from shared import failpoints
from shared.db.database import Database, Session
from shared.db.statements import Prepared
from shared.deliveries.outbox import enqueue_delivery
from shared.fairness.fair_queueing import first_of_each, select_round_robin
from shared.identity.tables import distributions
from shared.media.importing.imports import Import, ImportState
from shared.media.notifications.notification_tables import notification_endpoints
from shared.messaging.jobs import Context, sweep
from shared.messaging.queues import RETENTION
from shared.observability.telemetry import SWEPT
from shared.runtime.batches import drain

KIND = "distribution"
"""The kind of deliveries to distributions. The id of the destination is the distribution's id."""
BATCH_SIZE = 200


class EventType(StrEnum):
    """The types of events sent to distributions."""

    IMPORT_STORED = "media.import.stored"
    IMPORT_FAILED = "media.import.failed"
    FILE_EXPIRED = "file.expired"
    MESSAGE_REFUSED = "message.refused"
    MESSAGE_UPDATE = "message.update"


def _render(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def notify_import(session: Session, ended: Import) -> None:
    """Notify the distribution of an import's end. If a file was stored, insert the row for its later expiry.

    Call this function in the transaction that ends the import, after the file's row was written.
    """
    details = {
        "importId": str(ended.id),
        "network": ended.network,
        "messageId": ended.message_id,
        "attachmentId": ended.attachment_id,
        "conversationId": ended.conversation_id,
    }
    if ended.state is ImportState.STORED:
        stored = {**details, "fileId": str(ended.file_id), "versionId": str(ended.version_id)}
        session.fetch_one(
            _WATCH,
            {
                "file_id": ended.file_id,
                "distribution_id": ended.distribution_id,
                "details": json.dumps(stored),
            },
        )
        notify(session, distribution_id=ended.distribution_id, type=EventType.IMPORT_STORED, data=stored)
    else:
        failed = {**details, "code": ended.code}
        notify(session, distribution_id=ended.distribution_id, type=EventType.IMPORT_FAILED, data=failed)


def notify(
    session: Session,
    *,
    distribution_id: UUID,
    type: EventType,  # noqa: A002 (the field's word)
    data: Mapping[str, Any],
    sequence: int | None = None,
    render: Callable[[Any], str] = _render,
) -> UUID | None:
    """Send an event to a distribution after the commit. Return the delivery's id; None if there is no endpoint.

    If the endpoint is disabled, the event is stored for a replay. Events with a `sequence` are delivered in order.
    """
    # Read the database's time in the same statement, for the timestamp of the event.
    endpoint = session.fetch_one(_ENDPOINT, {"distribution_id": distribution_id})
    if endpoint is None:
        return None
    timestamp = endpoint.at.isoformat().replace("+00:00", "Z")
    body = render({"type": type.value, "timestamp": timestamp, "data": data})
    return enqueue_delivery(
        session,
        kind=KIND,
        event=type.value,
        destination_id=distribution_id,
        organization_id=endpoint.organization_id,
        body=body.encode(),
        ordered=sequence is not None,
        sequence=sequence,
        is_missed=endpoint.is_disabled,
    )


@sweep("media.notice_expired", queue=RETENTION, every_seconds=5)
def _notice_expired_media(context: Context) -> int:
    return notice_expired_media(context.database)


def notice_expired_media(database: Database) -> int:
    """Notify distributions of every file that is past its deadline. Return the number of rows handled."""

    def batch() -> int:
        with database.transaction() as session:
            noticed = _notice(session)
            failpoints.hit("notifications.before_commit")
        SWEPT.labels("expired_media").inc(noticed)
        return noticed

    return drain(batch, size=BATCH_SIZE)


def _notice(session: Session) -> int:
    ids = select_round_robin(session, oldest=_OLDEST, fair=_FAIR, limit=BATCH_SIZE)
    due = session.execute(_DUE, {"ids": [str(file_id) for file_id in ids]}).all() if ids else ()
    for row in due:
        # The file's retention was extended after the row was written, so move the row to the new deadline.
        if row.renewed_until is not None:
            session.execute(_POSTPONE, {"file_id": row.file_id, "expires_at": row.renewed_until})
            continue
        # Delete the row in the transaction that writes the notification, so that an expiry is notified exactly once.
        session.execute(_FORGET, {"file_id": row.file_id})
        if row.has_expired:
            data = {**row.details, "expiredAt": row.expires_at.isoformat().replace("+00:00", "Z")}
            notify(session, distribution_id=row.distribution_id, type=EventType.FILE_EXPIRED, data=data)
    return len(due)


_ENDPOINT = Prepared(
    select(
        notification_endpoints.c.organization_id,
        func.now().label("at"),
        notification_endpoints.c.disabled_at.is_not(None).label("is_disabled"),
    )
    .join(distributions, distributions.c.id == notification_endpoints.c.distribution_id)
    .where(
        notification_endpoints.c.distribution_id == bindparam("distribution_id"),
        distributions.c.disabled_at.is_(None),
    )
)
_WATCH = Prepared("""
INSERT INTO expiring_media (file_id, distribution_id, details, expires_at)
SELECT id, %(distribution_id)s, CAST(%(details)s AS jsonb), retention_expires_at FROM files
WHERE id = %(file_id)s AND retention_expires_at IS NOT NULL
ON CONFLICT (file_id) DO NOTHING RETURNING file_id
""")
_OLDEST = text(
    """
SELECT file_id FROM expiring_media WHERE expires_at <= now() ORDER BY expires_at LIMIT :limit FOR UPDATE SKIP LOCKED
"""
)
_HEADS = first_of_each(
    table="expiring_media", tenant="distribution_id", ready="true", order="expires_at", key="file_id"
)
_FAIR = text(f"SELECT id FROM ({_HEADS}) due ORDER BY place, random() LIMIT :limit")  # noqa: S608
# A file expires at its deadline, even if the sweep of files has not run yet. A file that was deleted before does not
# expire, so no event is sent for it.
_DUE = text(
    """
SELECT watched.file_id, watched.distribution_id, watched.details, watched.expires_at,
    COALESCE(files.state = 'Expired' OR (files.state = 'Available' AND files.retention_expires_at <= now()), false)
        AS has_expired,
    CASE WHEN files.state = 'Available' AND files.retention_expires_at > now() THEN files.retention_expires_at END
        AS renewed_until
FROM expiring_media watched LEFT JOIN files ON files.id = watched.file_id
WHERE watched.file_id = ANY (CAST(:ids AS uuid[])) AND watched.expires_at <= now()
ORDER BY watched.expires_at FOR UPDATE OF watched SKIP LOCKED
"""
)
_POSTPONE = text("UPDATE expiring_media SET expires_at = :expires_at WHERE file_id = :file_id")
_FORGET = text("DELETE FROM expiring_media WHERE file_id = :file_id")
