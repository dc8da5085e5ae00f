"""List the tasks of an organization's agents for administrators: their states, without any content.

Administrators read the content through the agent's own API, with the same permission (`agents/directory.py`).
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, Row, Select, Text, cast, func, select, true

from shared.a2a.tables import tasks
from shared.a2a.tasks.listing import LAST_CHANGED_FIRST, make_token, parse_token
from shared.a2a.types import TaskState
from shared.db.database import Session
from shared.db.schema import columns_of
from shared.identity.access.authorization import Actor, authorize_administration
from shared.identity.access.callers import ExecutorKind
from shared.identity.access.permissions import Permission
from shared.identity.lookups import require_organization
from shared.pagination import DEFAULT_LIMIT, Page, unknown_cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTask:
    """A task without its content; the agent works on behalf of `principal_id`."""

    id: UUID
    context_id: str
    organization_id: UUID
    deployment_id: UUID
    caller_id: UUID
    principal_id: UUID
    distribution_id: UUID | None
    state: TaskState
    status_at: datetime
    created_at: datetime


def list_organization_tasks(
    session: Session,
    *,
    actor: Actor,
    organization_id: UUID,
    state: TaskState | None = None,
    deployment_id: UUID | None = None,
    cursor: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page[ListedTask]:
    """Return a page of the tasks of an organization's agents, the most recently changed first.

    Raises PermissionDenied, ResourceNotFound, and ValidationFailed for an invalid cursor.
    """
    # The operator's command line may list tasks without a permission, because it never reads their content.
    if actor.caller.executor.kind is not ExecutorKind.OPERATOR:
        authorize_administration(actor, Permission.TASK_READ, organization_id)
    require_organization(session, organization_id)
    statement = select(*columns_of(ListedTask, tasks)).where(
        tasks.c.organization_id == organization_id, tasks.c.is_visible
    )
    if cursor is not None:
        before = parse_token(cursor)
        if before is None:
            raise unknown_cursor()
        statement = statement.where(LAST_CHANGED_FIRST.after(*before))
    if deployment_id is not None:
        statement = statement.where(tasks.c.deployment_id == deployment_id)
    found = _newest(statement, state, deployment_id, limit + 1)
    rows = session.execute(found).all()
    items = tuple(read_listed(row) for row in rows[:limit])
    return Page(items=items, next_cursor=make_token(items[-1]) if len(rows) > limit else None)


def _newest(
    statement: Select[Any], state: TaskState | None, deployment_id: UUID | None, count: int
) -> Select[Any]:
    """Return a query that can use an index.

    The index of a deployment's tasks does not contain the state. The index of an organization's tasks begins with the
    state, so for an organization the query merges one page of each state.
    """
    if state is not None or deployment_id is not None:
        filtered = statement if state is None else statement.where(tasks.c.state == state.value)
        return LAST_CHANGED_FIRST.order(filtered).limit(count)
    states = func.unnest(cast([each.value for each in TaskState], ARRAY(Text)))
    each = states.table_valued("state").render_derived("states")
    # One page of each state is enough, because the page over all states has only rows of these pages.
    of_state = LAST_CHANGED_FIRST.order(statement.where(tasks.c.state == each.c.state)).limit(count).lateral()
    merged = select(of_state).select_from(each.join(of_state, true()))
    return merged.order_by(of_state.c.status_at.desc(), of_state.c.id.desc()).limit(count)


def read_listed(row: Row[Any]) -> ListedTask:
    """Return the task in a row that has the columns of the list."""
    return ListedTask(**{**row._asdict(), "state": TaskState(row.state)})
