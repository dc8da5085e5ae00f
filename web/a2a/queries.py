"""The query parameters of A2A's routes, in camelCase or snake_case. Unknown parameters are ignored."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from shared.a2a.identifiers import check_identifier
from shared.a2a.tasks.listing import DEFAULT_PAGE, MAXIMUM_PAGE, TaskQuery
from shared.a2a.types import TaskState
from shared.a2a.wire import Instant
from web.framework.routes import AnyQuery

# Treat an empty value as absent: some clients send all parameters and leave the unused ones empty.
_EMPTY_AS_ABSENT = BeforeValidator(lambda value: None if value == "" else value)
STATES = WithJsonSchema({"type": "string", "enum": [state.value for state in TaskState]})
HistoryLength = Annotated[Annotated[int, Field(ge=0, le=(1 << 31) - 1)] | None, _EMPTY_AS_ABSENT]
PageSize = Annotated[Annotated[int, Field(ge=1, le=MAXIMUM_PAGE)] | None, _EMPTY_AS_ABSENT]


class AgentQuery(AnyQuery):
    """Parameters in camelCase, or in protobuf's snake_case."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class TaskReadQuery(AgentQuery):
    """The parameters of reading a task."""

    history_length: HistoryLength = None


class TaskListQuery(AgentQuery):
    """The filters of a list of tasks, and what each task includes."""

    context_id: Annotated[str | None, _EMPTY_AS_ABSENT] = None
    status: Annotated[TaskState | None, _EMPTY_AS_ABSENT, STATES] = None
    page_size: PageSize = None
    page_token: str = ""
    history_length: HistoryLength = None
    status_timestamp_after: Annotated[Instant | None, _EMPTY_AS_ABSENT] = None
    include_artifacts: Literal["true", "false", ""] = ""

    def wanted(self) -> TaskQuery:
        """Return the domain's query. Raises InvalidParams if the context id is malformed."""
        if self.context_id is not None:
            check_identifier("contextId", self.context_id, location="query")
        return TaskQuery(
            context_id=self.context_id,
            state=self.status,
            changed_since=self.status_timestamp_after,
            page_size=self.page_size or DEFAULT_PAGE,
            page_token=self.page_token,
            history_length=self.history_length,
            with_artifacts=self.include_artifacts == "true",
        )


class PageQuery(AgentQuery):
    """The page of a list."""

    page_size: PageSize = None
    page_token: str = ""
