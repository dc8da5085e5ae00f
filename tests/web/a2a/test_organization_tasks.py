"""The list of all tasks of an organization's agents, which requires TaskRead."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from shared.a2a.tables import tasks
from shared.identity.access.roles import Role
from shared.ids import new_id
from tests.support.data.row_factory import plant
from tests.support.web.web_process import Front

NOW = datetime.now(UTC)


@pytest.fixture
def organization_id(front: Front) -> UUID:
    return front.identity.organization().id


def put(front: Front, organization_id: UUID, state: str, minutes: int, **values: Any) -> str:
    task_id = new_id()
    plant(
        front.services.database,
        tasks,
        id=task_id,
        organization_id=organization_id,
        state=f"TASK_STATE_{state}",
        status_at=NOW - timedelta(minutes=minutes),
        **{"is_visible": True, **values},
    )
    return str(task_id)


def ids(front: Front, organization_id: UUID, query: str = "") -> list[str]:
    admin = front.identity.person(organization_id, Role.WORKSPACE_ADMIN)
    answer = front.get(f"/admin/organizations/{organization_id}/tasks{query}", admin.authorization)
    assert answer.status_code == 200, answer.get_json()
    return [task["id"] for task in answer.get_json()["tasks"]]


def test_tasks_are_listed_by_their_last_change_and_filtered(front: Front, organization_id: UUID) -> None:
    deployment = uuid4()
    old = put(front, organization_id, "FAILED", 9)
    new = put(front, organization_id, "WORKING", 1)
    between = put(front, organization_id, "FAILED", 5, deployment_id=deployment)
    put(front, organization_id, "FAILED", 2, is_visible=False)
    put(front, front.identity.organization().id, "FAILED", 3)
    for query, found in (
        ("", [new, between, old]),
        ("?state=TASK_STATE_FAILED", [between, old]),
        (f"?deploymentId={deployment}", [between]),
        (f"?deploymentId={deployment}&state=TASK_STATE_WORKING", []),
    ):
        assert ids(front, organization_id, query) == found


def test_pages_hold_every_task_once(front: Front, organization_id: UUID) -> None:
    states = ("FAILED", "WORKING", "COMPLETED", "FAILED", "SUBMITTED")
    made = [put(front, organization_id, state, number) for number, state in enumerate(states)]
    admin = front.identity.person(organization_id, Role.WORKSPACE_ADMIN)
    found: list[str] = []
    position = ""
    for _ in range(3):
        path = f"/admin/organizations/{organization_id}/tasks?limit=2{position}"
        page = front.get(path, admin.authorization).get_json()
        found += [task["id"] for task in page["tasks"]]
        position = f"&cursor={page['nextCursor']}"
    assert (found, page["nextCursor"]) == (made, None)


def test_other_callers_cannot_list_tasks(front: Front, organization_id: UUID) -> None:
    path = f"/admin/organizations/{organization_id}/tasks"
    member = front.identity.person(organization_id)
    stranger = front.identity.person(front.identity.organization().id, Role.WORKSPACE_OWNER)
    assert front.get(path, member.authorization).status_code == 403
    for other in (stranger, front.identity.operator()):
        assert front.get(path, other.authorization).status_code == 404


@pytest.mark.parametrize("query", ["state=FAILED", "cursor=x", "limit=0"])
def test_invalid_filter_is_refused(front: Front, organization_id: UUID, query: str) -> None:
    admin = front.identity.person(organization_id, Role.WORKSPACE_ADMIN)
    answer = front.get(f"/admin/organizations/{organization_id}/tasks?{query}", admin.authorization)
    assert answer.status_code == 422
    assert answer.get_json()["errors"][0]["name"] == query.partition("=")[0]
