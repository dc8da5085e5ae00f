"""The values that schedules are made of and shown as: frozen, independent of any transaction."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

MAX_CATCH_UP = 100


class Missed(StrEnum):
    """What becomes of ticks that came while nothing ran.

    `SKIP` drops them, `RUN_ONCE` runs the last of them, `CATCH_UP` runs them all, up to the schedule's limit.
    """

    SKIP = "skip"
    RUN_ONCE = "run_once"
    CATCH_UP = "catch_up"


class RunState(StrEnum):
    """What became of a tick."""

    STARTED = "started"
    REFUSED = "refused"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDraft:
    """What a schedule is to be. `message` is a Message of the protocol without `messageId`, `role` and `taskId`."""

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
    """What became of a tick. `passed_over` counts the ticks before it that were not run, 1,000 standing for more.

    `files` are those that its task refers to, the artifacts that the agent stored among them.
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
