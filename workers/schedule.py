"""When the sweeps run: every state a row can wait in has one, so that a lost message only costs its interval.

Two beats at once are harmless: every handler claims what it does.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from shared.a2a.jobs import PurgeTasks, SweepTurns
from shared.a2a.schedules.jobs import RunDueSchedules
from shared.credits.jobs import (
    ProveLedger,
    PurgeInvocations,
    ReleaseOverdueHolds,
    RollUpUsage,
    SettleUnresolved,
)
from shared.deliveries.jobs import PurgeDeliveries, SendDeliveries
from shared.files.jobs import (
    AccrueStorage,
    CollectDoomed,
    ExpireDue,
    PlaceStaged,
    ProveStorage,
    PurgeRecords,
    ScrubContent,
    SweepStaging,
)
from shared.identity.jobs import RotateDueKeys, SweepRevokedTokens
from shared.jobs import Job
from shared.media.jobs import FetchDueMedia, ForgetReplacedSecrets, PurgeImports
from shared.media.notification_jobs import NoticeExpiredMedia

_INTERVALS: dict[type[Job], float] = {
    PlaceStaged: 5,
    ExpireDue: 5,
    CollectDoomed: 10,
    SweepStaging: 30,
    ScrubContent: 60,
    PurgeRecords: 3600,
    AccrueStorage: 600,
    ProveStorage: 21_600,
    RotateDueKeys: 600,
    SweepRevokedTokens: 600,
    ReleaseOverdueHolds: 5,
    SettleUnresolved: 10,
    RollUpUsage: 60,
    ProveLedger: 3600,
    PurgeInvocations: 3600,
    SendDeliveries: 5,
    NoticeExpiredMedia: 5,
    FetchDueMedia: 5,
    PurgeImports: 3600,
    ForgetReplacedSecrets: 3600,
    SweepTurns: 30,
    PurgeTasks: 3600,
    RunDueSchedules: 5,
    PurgeDeliveries: 3600,
}

_NEVER = datetime(2000, 1, 1, tzinfo=UTC)

SCHEDULE: dict[str, dict[str, Any]] = {
    job.kind: {
        "task": job.kind,
        "schedule": seconds,
        # A sweep that no worker took within its interval is pointless: the next one is due.
        "options": {"queue": job.queue, "expires": seconds, "ignore_result": True},
        # Beat remembers nothing over a restart: one that restarts every hour would otherwise never send what is hourly.
        "last_run_at": _NEVER,
    }
    for job, seconds in _INTERVALS.items()
}
