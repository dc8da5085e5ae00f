"""Notify an organization's endpoint when 50, 80 or 100 per cent of a budget are spent.

The settlement that reaches one of these shares writes an alert. This job moves the alerts to the outbox, in the
order of the settlements. Alerts of an organization without a notification endpoint are dropped.
"""

import json
from typing import Any

from sqlalchemy import Row, text

from shared.credits.amounts import format_credits
from shared.db.database import Database, Session
from shared.deliveries.organization_endpoints import KIND, find_is_disabled
from shared.deliveries.outbox import enqueue_delivery
from shared.messaging.jobs import Context, sweep
from shared.messaging.queues import LEDGER
from shared.observability.telemetry import SWEPT
from shared.runtime.batches import drain

SHARE_REACHED = "budget.share_reached"
BATCH_SIZE = 200


@sweep("credits.send_budget_alerts", queue=LEDGER, every_seconds=5)
def _send_budget_alerts(context: Context) -> int:
    return send_budget_alerts(context.database)


def send_budget_alerts(database: Database) -> int:
    """Move the pending alerts to the outbox. Return the number of alerts, including dropped ones."""

    def batch() -> int:
        with database.transaction() as session:
            alerts = session.execute(_TAKE, {"limit": BATCH_SIZE}).all()
            # Sort by organization, because enqueueing locks the organization's sequence: an equal order of locks
            # avoids deadlocks.
            for alert in sorted(alerts, key=lambda row: (row.organization_id, row.id)):
                _enqueue_notification(session, alert)
        SWEPT.labels("budget_alerts").inc(len(alerts))
        return len(alerts)

    return drain(batch, size=BATCH_SIZE)


def _enqueue_notification(session: Session, alert: Row[Any]) -> None:
    is_disabled = find_is_disabled(session, alert.organization_id)
    if is_disabled is None:
        return
    details = alert.details
    data = {
        "budgetId": str(alert.budget_id),
        "subjectKind": details["subject_kind"],
        "subjectId": details["subject_id"],
        "model": details["model"],
        "period": details["period"],
        "share": alert.share,
        "amount": format_credits(details["amount"]),
        "spent": format_credits(details["spent"]),
        "resetsAt": details["resets_at"] and details["resets_at"].replace("+00:00", "Z"),
    }
    body = {"type": SHARE_REACHED, "timestamp": alert.at.isoformat().replace("+00:00", "Z"), "data": data}
    enqueue_delivery(
        session,
        kind=KIND,
        event=SHARE_REACHED,
        destination_id=alert.organization_id,
        organization_id=alert.organization_id,
        body=json.dumps(body, separators=(",", ":")).encode(),
        ordered=True,
        is_missed=is_disabled,
    )


# Lock without SKIP LOCKED: a concurrent run waits, so that its later alerts do not overtake the alerts of this run.
_TAKE = text(
    """
DELETE FROM budget_alerts WHERE id = ANY (ARRAY(
    SELECT id FROM budget_alerts ORDER BY id LIMIT :limit FOR UPDATE
)) RETURNING id, organization_id, budget_id, share, details, at
"""
)
