"""List the tasks that a caller may read, the most recently changed first."""

import base64
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import func, select

from shared.a2a.agents.directory import Readable
from shared.a2a.errors import InvalidParams
from shared.a2a.tables import tasks
from shared.a2a.tasks.snapshots import in_scope, snapshots_of
from shared.a2a.types import ListTasksResponse, TaskState
from shared.db.database import Session
from shared.errors import FieldError
from shared.pagination import descending

DEFAULT_PAGE = 50
MAXIMUM_PAGE = 100
INVALID_PAGE = "is not a token that this list returned"
LAST_CHANGED_FIRST = descending(tasks.c.status_at, tasks.c.id)
DEFAULT_HISTORY = 10
"""Messages of each listed task if the client sets no length; a single task is returned with all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskQuery:
    """The filters of a list, its page, and the amount of history and artifacts for each task."""

    context_id: str | None = None
    state: TaskState | None = None
    changed_since: datetime | None = None
    page_size: int = DEFAULT_PAGE
    page_token: str = ""
    history_length: int | None = None
    with_artifacts: bool = False


def list_tasks(session: Session, scope: Readable, query: TaskQuery) -> ListTasksResponse:
    """Return a page of tasks and the total number. Raises InvalidParams for an invalid page token."""
    conditions = [*in_scope(scope), tasks.c.is_visible, *_filters(query)]
    total = session.execute(select(func.count()).select_from(tasks).where(*conditions)).scalar_one()
    statement = select(tasks).where(*conditions)
    if query.page_token:
        before = parse_token(query.page_token)
        if before is None:
            field = FieldError(location="query", name="pageToken", message=INVALID_PAGE)
            raise InvalidParams(errors=[field])
        statement = statement.where(LAST_CHANGED_FIRST.after(*before))
    rows = session.execute(LAST_CHANGED_FIRST.order(statement).limit(query.page_size + 1)).all()
    page = rows[: query.page_size]
    # A page of tasks with complete histories would be too large, so lists have a shorter default history.
    length = DEFAULT_HISTORY if query.history_length is None else query.history_length
    return ListTasksResponse(
        tasks=snapshots_of(session, page, history_length=length, with_artifacts=query.with_artifacts),
        next_page_token=make_token(page[-1]) if len(rows) > len(page) else "",
        page_size=query.page_size,
        total_size=total,
    )


def _filters(query: TaskQuery) -> list[Any]:
    filters: list[Any] = []
    if query.context_id is not None:
        filters.append(tasks.c.context_id == query.context_id)
    if query.state is not None:
        filters.append(tasks.c.state == query.state)
    if query.changed_since is not None:
        filters.append(tasks.c.status_at >= query.changed_since)
    return filters


def make_token(row: Any) -> str:
    """Return the token of the page that follows this task."""
    return base64.urlsafe_b64encode(f"{row.status_at.isoformat()} {row.id}".encode()).decode()


def parse_token(token: str) -> tuple[datetime, UUID] | None:
    """Return the position of a page token: the time and id of a task. Return None for an invalid token."""
    try:
        at, _, task_id = base64.urlsafe_b64decode(token.encode()).decode().partition(" ")
        read = datetime.fromisoformat(at)
        # The database only compares times that have a time zone, so refuse a time without one.
        return None if read.tzinfo is None else (read, UUID(task_id))
    except ValueError:
        return None
