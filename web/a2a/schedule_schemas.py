"""The JSON of schedules and their runs."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import Field

from shared.a2a.schedules.cron import MAX_CHARACTERS
from shared.a2a.schedules.resources import MAX_CATCH_UP, Missed, Run, ScheduleDraft
from shared.pagination import Page
from web.http.schemas import PageResponse, ResponseModel
from web.http.wire_types import Between, Id, JsonCount, Name, RequestModel, Text, UtcTime

Cron = Annotated[
    str,
    Text(minimum=9, maximum=MAX_CHARACTERS),
    Field(
        description="Five fields: minute, hour, day of month, month, day of week.",
        examples=["0 9 * * MON-FRI"],
    ),
]
TimeZone = Annotated[
    str,
    Text(minimum=1, maximum=100),
    Field(description="The time zone the fields are meant in.", examples=["Europe/Berlin"]),
]
Template = Annotated[
    dict[str, Any],
    Field(
        description="A Message of the A2A protocol without `messageId`, `role` and `taskId`. In its texts `${tick}`"
        " stands for the tick's time and `${schedule}` for the schedule's name. Extensions that it lists are activated."
    ),
]
MissedTicks = Annotated[
    Literal["skip", "run_once", "catch_up"],
    Field(
        description="What becomes of ticks that come while nothing runs: dropped, the last of them run, or all of them"
        " up to `catchUpLimit`."
    ),
]
Owner = Annotated[
    Id | None,
    Field(
        description="The Principal Identity that receives: it owns what the agent stores, and usage is its own."
        " It gives no permission. Without one the agent's daemon stands in its place."
    ),
]


class ScheduleBody(ResponseModel):
    """A schedule: when an agent is told what, and on whose behalf."""

    id: Id
    deployment_id: Id
    name: str
    cron: str
    time_zone: str
    message: dict[str, Any]
    behavior_id: Id | None
    principal_identity_id: Owner
    missed: Missed
    catch_up_limit: JsonCount
    next_at: Annotated[UtcTime | None, Field(description="The next tick; null while disabled.")]
    disabled_at: UtcTime | None
    created_at: UtcTime


class SchedulePage(PageResponse):
    """Schedules, oldest first."""

    schedules: Sequence[ScheduleBody]


class SentSchedule(RequestModel):
    """What a schedule is to be."""

    name: Name
    cron: Cron
    time_zone: TimeZone = "UTC"
    message: Template
    behavior_id: Annotated[
        Id | None, Field(description="The behavior that answers; the default one if null.")
    ] = None
    principal_identity_id: Owner = None
    missed: MissedTicks = "skip"
    catch_up_limit: Annotated[JsonCount, Between(minimum=1, maximum=MAX_CATCH_UP)] = 10

    def draft(self) -> ScheduleDraft:
        """Give what the domain takes."""
        return ScheduleDraft(
            name=self.name,
            cron=self.cron,
            time_zone=self.time_zone,
            message=self.message,
            behavior_id=self.behavior_id,
            principal_identity_id=self.principal_identity_id,
            missed=Missed(self.missed),
            catch_up_limit=self.catch_up_limit,
        )


class RunFile(ResponseModel):
    """A file of a run's task."""

    id: Id
    url: Annotated[str, Field(description="Where the file's metadata is read.")]


class RunBody(ResponseModel):
    """What became of a tick."""

    id: Id
    tick_at: UtcTime
    state: Annotated[
        str, Field(description="`started`, `refused` (see `code`), or `skipped` with those before it.")
    ]
    code: str | None
    task_id: Id | None
    task_state: Annotated[str | None, Field(description="Where the task is now; null once it is forgotten.")]
    task_url: Annotated[
        str | None,
        Field(description="Where the task is read, with its artifacts; null once it is forgotten."),
    ]
    files: Annotated[
        Sequence[RunFile],
        Field(description="Files that the task refers to, its stored artifacts among them; 20 at the most."),
    ]
    passed_over: Annotated[
        JsonCount, Field(description="Ticks before this one that were not run; 1000 for more.")
    ]
    created_at: UtcTime


class RunPage(PageResponse):
    """Runs, newest first."""

    runs: Sequence[RunBody]

    @classmethod
    def linked(cls, page: Page[Run], tasks_url: str, base_url: str) -> "RunPage":
        """Show a page with the addresses of tasks and files."""
        runs = [_linked(run, tasks_url, base_url) for run in page.items]
        return cls.model_validate({"runs": runs, "next_cursor": page.next_cursor})


def _linked(run: Run, tasks_url: str, base_url: str) -> RunBody:
    links = {
        "task_url": f"{tasks_url}/{run.task_id}" if run.task_state is not None else None,
        "files": [RunFile(id=file_id, url=f"{base_url}/files/{file_id}") for file_id in run.files],
    }
    return RunBody.model_validate(asdict(run) | links)
