"""Request and response models of schedules and their runs."""

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
    Field(description="The time zone of these fields.", examples=["Europe/Berlin"]),
]
Template = Annotated[
    dict[str, Any],
    Field(
        description="A Message of the A2A protocol without `messageId`, `role` and `taskId`. In its texts, `${tick}`"
        " is replaced by the tick's time and `${schedule}` by the schedule's name. Its extensions are activated."
    ),
]
MissedTicks = Annotated[
    Literal["skip", "run_once", "catch_up"],
    Field(
        description="What to do with ticks that were missed while no worker ran: drop them, run the last one, or run"
        " all of them up to `catchUpLimit`."
    ),
]
Owner = Annotated[
    Id | None,
    Field(
        description="The receiving Principal Identity: it owns what the agent stores, and usage is attributed to it."
        " It grants no permission. Without one, the agent's daemon (the deployment's service account) is used."
    ),
]


class ScheduleBody(ResponseModel):
    """A schedule: when an agent gets which message, and for which identity."""

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
    """A page of schedules, oldest first."""

    schedules: Sequence[ScheduleBody]


class SentSchedule(RequestModel):
    """The new state of a schedule."""

    name: Name
    cron: Cron
    time_zone: TimeZone = "UTC"
    message: Template
    behavior_id: Annotated[
        Id | None, Field(description="The behavior that handles the message. Null: the default one.")
    ] = None
    principal_identity_id: Owner = None
    missed: MissedTicks = "skip"
    catch_up_limit: Annotated[JsonCount, Between(minimum=1, maximum=MAX_CATCH_UP)] = 10

    def draft(self) -> ScheduleDraft:
        """Return the domain's object."""
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
    url: Annotated[str, Field(description="The URL of the file's metadata.")]


class RunBody(ResponseModel):
    """The result of a tick."""

    id: Id
    tick_at: UtcTime
    state: Annotated[
        str,
        Field(description="`started`, `refused` (see `code`), or `skipped` together with those before it."),
    ]
    code: str | None
    task_id: Id | None
    task_state: Annotated[str | None, Field(description="The task's current state. Null once it is deleted.")]
    task_url: Annotated[
        str | None,
        Field(description="The URL of the task and its artifacts. Null once it is deleted."),
    ]
    files: Annotated[
        Sequence[RunFile],
        Field(description="Files that the task refers to, including stored artifacts; 20 at most."),
    ]
    passed_over: Annotated[
        JsonCount, Field(description="The number of ticks before this one that were not run; at most 1000.")
    ]
    created_at: UtcTime


class RunPage(PageResponse):
    """A page of runs, newest first."""

    runs: Sequence[RunBody]

    @classmethod
    def linked(cls, page: Page[Run], tasks_url: str, base_url: str) -> "RunPage":
        """Return the model of a page, with the URLs of the tasks and files."""
        runs = [_linked(run, tasks_url, base_url) for run in page.items]
        return cls.model_validate({"runs": runs, "next_cursor": page.next_cursor})


def _linked(run: Run, tasks_url: str, base_url: str) -> RunBody:
    links = {
        # Omit the link to a task that was deleted.
        "task_url": f"{tasks_url}/{run.task_id}" if run.task_state is not None else None,
        "files": [RunFile(id=file_id, url=f"{base_url}/files/{file_id}") for file_id in run.files],
    }
    return RunBody.model_validate(asdict(run) | links)
