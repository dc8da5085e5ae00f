"""The values of schedules: frozen, independent of any transaction."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

MAX_CATCH_UP = 100


class Missed(StrEnum):
    """The treatment of ticks that were due while no worker ran.

    `SKIP` drops these ticks, `RUN_ONCE` runs the last tick, and `CATCH_UP` runs all ticks up to the schedule's limit.
    """

    SKIP = "skip"
    RUN_ONCE = "run_once"
    CATCH_UP = "catch_up"


class RunState(StrEnum):
    """The result of a tick."""

    STARTED = "started"
    REFUSED = "refused"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDraft:
    """The values for a schedule. `message` is a protocol Message without `messageId`, `role` and `taskId`."""

    name: str
    cron: str
    time_zone: str
    message: dict[str, Any]
    behavior_id: UUID | None = None
    principal_identity_id: UUID | None = None
    missed: Missed = Missed.SKIP
    catch_up_limit: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule; `next_at` is None while it is disabled."""

    id: UUID
    deployment_id: UUID
    name: str
    cron: str
    time_zone: str
    message: dict[str, Any]
    behavior_id: UUID | None
    principal_identity_id: UUID | None
    missed: Missed
    catch_up_limit: int
    next_at: datetime | None
    disabled_at: datetime | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The result of a tick.

    `passed_over` counts the skipped ticks before this tick; 1,000 means 1,000 or more. `files` are the files to which
    the run's task refers, among them the artifacts that the agent has stored.
    """

    id: UUID
    tick_at: datetime
    state: RunState
    code: str | None
    task_id: UUID | None
    task_state: str | None
    files: tuple[UUID, ...] = ()
    passed_over: int
    created_at: datetime
