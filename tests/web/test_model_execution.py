"""`model.execute` must be granted on an organization. A grant on identities alone permits no call on any route."""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

import pytest
from sqlalchemy import text

from shared.a2a.schedules.scheduler import Scheduler, run_due_schedules
from shared.identity.access.roles import Role
from tests.support.agents.agent_worker import answering_turns
from tests.support.web.web_process import Front
from tests.web.a2a.asking import request
from tests.web.files.conftest import demote
from tests.web.inbound.conftest import make_distribution_client
from tests.web.test_cross_organization import Tenant, make_tenant

LACKS = "The deployment's daemon identity lacks model.execute in the organization."
CALLS = {
    "chat": (
        "POST",
        "/v1/chat/completions",
        {"model": "scripted/echo", "messages": [{"role": "user", "content": "hi"}]},
    ),
    "responses": ("POST", "/v1/responses", {"model": "scripted/echo", "input": "hi", "store": False}),
    "catalog": ("GET", "/v1/models", None),
    "entry": ("GET", "/v1/models/scripted/echo", None),
}


@dataclass(frozen=True, kw_only=True)
class Narrow:
    """A tenant whose deployment's service account is ProjectAgent of its own and the receiving identity only."""

    front: Front
    tenant: Tenant

    @property
    def deployment_id(self) -> UUID:
        return self.tenant.deployment.deployment.id


@pytest.fixture(scope="module")
def narrow(front: Front) -> Iterator[Narrow]:
    tenant = make_tenant(front, "Acme")
    confine(front, tenant)
    with answering_turns(front.services):
        yield Narrow(front=front, tenant=tenant)
    front.services.agents.watch.close()


def confine(front: Front, tenant: Tenant) -> None:
    daemon_id = tenant.deployment.deployment.daemon_identity_id
    demote(front, tenant.deployment)
    for over in (daemon_id, tenant.principal_id):
        front.identity.bind_identity(tenant.organization_id, daemon_id, Role.PROJECT_AGENT, over=over)


@pytest.mark.parametrize("who", ["deployment", "deployment, attributed"])
@pytest.mark.parametrize("name", CALLS)
def test_model_routes_refuse_a_daemon_with_identity_grants_only(narrow: Narrow, name: str, who: str) -> None:
    method, path, body = CALLS[name]
    headers = narrow.tenant.credentials[who]
    answer = narrow.front.client.open(path, method=method, headers=headers, json=body)
    error = answer.get_json()["error"]
    assert (answer.status_code, error["code"]) == (403, "model_authorization_denied")
    assert error["message"] == LACKS
    assert narrow.front.get("/files", headers["Authorization"]).status_code == 200


@pytest.mark.parametrize("who", ["deployment", "deployment, attributed"])
def test_agents_refuse_a_daemon_with_identity_grants_only(narrow: Narrow, who: str) -> None:
    headers = narrow.tenant.credentials[who]
    path = f"/agents/{narrow.deployment_id}/message:send"
    answer = narrow.front.client.post(path, headers=headers, json=request("hello"))
    assert answer.status_code == 403
    assert LACKS in answer.text


def test_error_names_the_daemon_and_the_missing_permission(narrow: Narrow) -> None:
    admin = narrow.tenant.credentials["admin"]
    behavior = {"name": "Model", "kind": "model", "description": "Asks.", "model": "scripted/echo"}
    made = narrow.front.client.post(
        f"/admin/deployments/{narrow.deployment_id}/behaviors", headers=admin, json=behavior
    )
    assert made.status_code == 201, made.text
    path = f"/agents/{narrow.deployment_id}/message:send"
    task = narrow.front.client.post(path, headers=admin, json=request("hello")).get_json()["task"]
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert task["status"]["message"]["parts"][0]["text"] == LACKS


def test_schedules_of_a_daemon_with_identity_grants_are_refused(narrow: Narrow) -> None:
    front, admin = narrow.front, narrow.tenant.credentials["admin"]
    path = f"/admin/deployments/{narrow.deployment_id}/schedules"
    daily = {
        "name": "Report",
        "cron": "0 9 * * *",
        "message": {"parts": [{"text": "report"}]},
        "missed": "run_once",
        "principalIdentityId": str(narrow.tenant.principal_id),
    }
    schedule_id = front.client.post(path, headers=admin, json=daily).get_json()["id"]
    with front.services.database.transaction() as session:
        due = "UPDATE schedules SET next_at = date_trunc('hour', now()) - interval '2 days' WHERE id = :id"
        session.execute(text(due), {"id": schedule_id})
    run_due_schedules(Scheduler(database=front.services.database, router=front.services.agents.router))
    (run,) = front.client.get(f"{path}/{schedule_id}/runs", headers=admin).get_json()["runs"]
    assert (run["state"], run["code"]) == ("refused", "permission_denied")


def test_messages_to_a_daemon_with_identity_grants_are_refused(front: Front) -> None:
    distribution = make_distribution_client(front)
    made = distribution.connector.deployment
    demote(front, made)
    daemon_id, organization_id = made.deployment.daemon_identity_id, made.deployment.organization_id
    for over in (daemon_id, distribution.connector.principal_id):
        front.identity.bind_identity(organization_id, daemon_id, Role.PROJECT_AGENT, over=over)
    answer = distribution.push().get_json()
    assert (answer["status"], answer["code"], answer["detail"]) == (403, "permission_denied", LACKS)
    assert distribution.rows() == []


def test_organization_grant_permits_calls_for_any_owner(narrow: Narrow) -> None:
    tenant = make_tenant(narrow.front, "Globex")
    for who in ("deployment", "deployment, attributed", "member"):
        assert narrow.front.client.get("/v1/models", headers=tenant.credentials[who]).status_code == 200
