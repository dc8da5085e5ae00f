"""A run links to its task and files, for the deployment's administrators and for the deployment itself."""

from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import text

from shared.a2a.schedules.scheduler import Scheduler, run_due_schedules
from shared.identity.access.roles import Role
from shared.identity.directory.deployments import CreatedDeployment
from shared.identity.directory.identities import Identity
from tests.support.processes.stack import wait_until
from tests.web.a2a.conftest import Cast

REPORTER = """
rules:
  - steps:
      - artifact: {id: a, file: {name: report.txt, text: "the report"}}
      - complete: Done
"""
DAILY = {
    "name": "Report",
    "cron": "0 9 * * *",
    "message": {"parts": [{"text": "report"}]},
    "missed": "run_once",
}


@pytest.fixture(scope="module")
def receiver(cast: Cast) -> Identity:
    return cast.front.identity.principal(cast.acme)


@pytest.fixture(scope="module")
def admin(cast: Cast) -> str:
    return cast.front.identity.person(cast.acme, Role.WORKSPACE_ADMIN).authorization


@pytest.fixture(scope="module")
def reporter(cast: Cast) -> CreatedDeployment:
    """An agent that stores a report."""
    return cast.new_agent(REPORTER)[0]


@pytest.fixture(scope="module")
def run(cast: Cast, reporter: CreatedDeployment, receiver: Identity, admin: str) -> Mapping[str, Any]:
    """The run of a schedule's single tick, for the receiving identity."""
    front, deployment_id = cast.front, reporter.deployment.id
    path = f"/admin/deployments/{deployment_id}/schedules"
    sent = {**DAILY, "principalIdentityId": str(receiver.id)}
    schedule_id = front.post(path, admin, json=sent).get_json()["id"]
    with front.services.database.transaction() as session:
        due = text(
            "UPDATE schedules SET next_at = date_trunc('hour', now()) - interval '2 days' WHERE id = :id"
        )
        session.execute(due, {"id": schedule_id})
    run_due_schedules(Scheduler(database=front.services.database, router=front.services.agents.router))

    def ended() -> Any:
        (found,) = front.get(f"{path}/{schedule_id}/runs", admin).get_json()["runs"]
        return found if found["taskState"] == "TASK_STATE_COMPLETED" else None

    wait_until(lambda: ended() is not None, "the task has ended")
    found: Mapping[str, Any] = ended()
    return found


@pytest.mark.parametrize("who", ["admin", "owner", "the deployment"])
def test_the_task_and_its_files_are_read_by(
    cast: Cast, run: Mapping[str, Any], reporter: CreatedDeployment, receiver: Identity, admin: str, who: str
) -> None:
    make = cast.front.identity
    authorization = {
        "admin": lambda: admin,
        "owner": lambda: make.person(cast.acme, Role.WORKSPACE_OWNER).authorization,
        "the deployment": lambda: make.authorization(reporter),
    }[who]()
    base = cast.front.settings.base_url
    task = cast.front.get(run["taskUrl"].removeprefix(base), authorization).get_json()
    assert task["id"] == run["taskId"]
    link = task["artifacts"][0]["parts"][0]["url"].removeprefix(base)
    assert cast.front.get(link).text == "the report"
    (file,) = run["files"]
    assert f"/files/{file['id']}/" in link
    found = cast.front.get(file["url"].removeprefix(base), authorization)
    if who == "the deployment":  # may use the task's link, but the file belongs to the receiving identity
        assert found.status_code == 404
    else:
        assert found.get_json()["owner"]["id"] == str(receiver.id)


def test_run_is_not_found_for_other_callers(cast: Cast, run: Mapping[str, Any]) -> None:
    path = run["taskUrl"].removeprefix(cast.front.settings.base_url)
    caller = cast.front.identity.authorization(cast.caller_agent)
    for authorization, status in (
        (cast.member.authorization, 404),
        (caller, 404),
        (cast.stranger.authorization, 403),
    ):
        assert cast.front.get(path, authorization).status_code == status
