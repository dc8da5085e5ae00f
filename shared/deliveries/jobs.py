"""The background work of the outbox; its rows are also looked for on the schedule, without any message."""

from __future__ import annotations

from dataclasses import dataclass

from shared.jobs import NOTIFICATIONS, RETENTION, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class SendDeliveries(Job):
    """Messages may wait to be sent, or to be sent again."""

    kind = "deliveries.send"
    queue = NOTIFICATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeDeliveries(Job):
    """Records of deliveries may have outlived their use."""

    kind = "deliveries.purge"
    queue = RETENTION
