"""The background work of schedules."""

from __future__ import annotations

from dataclasses import dataclass

from shared.jobs import RETENTION, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDueSchedules(Job):
    """Find schedules whose tick has come."""

    kind = "schedules.run_due"
    queue = RETENTION
