"""The background work of notifications; what waits to be told is also looked for on the schedule alone."""

from __future__ import annotations

from dataclasses import dataclass

from shared.jobs import RETENTION, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeExpiredMedia(Job):
    """Files may have expired of which nobody has been told."""

    kind = "media.notice_expired"
    queue = RETENTION
