"""Administrators replace a deployment's daemon, the executor and owner of the deployment's own work."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from shared.identity.access.roles import Role
from tests.support.data.identity import Person
from tests.support.files.file_requests import Asker, refuse, succeed
from tests.support.web.web_process import Front
from tests.web.files.conftest import agent_of


@pytest.fixture
def organization_id(front: Front) -> UUID:
    return front.identity.organization().id


@pytest.fixture
def admin(front: Front, organization_id: UUID) -> Person:
    return front.identity.person(organization_id, Role.WORKSPACE_ADMIN)


def change(front: Front, by: Person, deployment_id: UUID, **body: Any) -> Any:
    path = f"/admin/deployments/{deployment_id}/daemon-identity"
    return front.put(path, by.authorization, json=body)


def test_what_is_stored_from_then_on_is_the_new_daemons(
    front: Front, organization_id: UUID, admin: Person
) -> None:
    made = front.identity.deployment(organization_id)
    agent: Asker = agent_of(front, made)
    before = made.deployment.daemon_identity_id
    old = succeed(agent.upload(b"old"), 201)
    changed = succeed(change(front, admin, made.deployment.id))
    assert changed["daemonIdentityId"] != str(before)
    assert changed["clientId"] == str(made.deployment.client_id)
    refuse(agent.metadata(old), 404, "file_not_found")
    new = succeed(agent.upload(b"new"), 201)
    assert succeed(agent.metadata(new))["owner"]["id"] == changed["daemonIdentityId"]
    succeed(change(front, admin, made.deployment.id, daemonIdentityId=str(before)))
    assert succeed(agent.metadata(old))["owner"]["id"] == str(before)


def test_the_change_is_recorded_once(front: Front, organization_id: UUID, admin: Person) -> None:
    made = front.identity.deployment(organization_id).deployment
    changed = succeed(change(front, admin, made.id))
    succeed(change(front, admin, made.id, daemonIdentityId=changed["daemonIdentityId"]))
    path = f"/admin/organizations/{organization_id}/audit-events?limit=1"
    (event,) = front.get(path, admin.authorization).get_json()["auditEvents"]
    assert (event["action"], event["resourceId"]) == ("deployment.daemon_changed", str(made.id))
    assert event["details"] == {
        "daemonIdentityId": changed["daemonIdentityId"],
        "insteadOf": str(made.daemon_identity_id),
    }


def test_a_daemon_serves_one_deployment(front: Front, organization_id: UUID, admin: Person) -> None:
    one, other = (front.identity.deployment(organization_id).deployment for _ in range(2))
    taken = change(front, admin, one.id, daemonIdentityId=str(other.daemon_identity_id))
    refuse(taken, 409, "already_exists")


def test_what_is_no_daemon_of_the_organization_is_refused(
    front: Front, organization_id: UUID, admin: Person
) -> None:
    made = front.identity.deployment(organization_id).deployment
    mailbox = front.identity.principal(organization_id)
    refuse(change(front, admin, made.id, daemonIdentityId=str(mailbox.id)), 422, "validation_failed")
    elsewhere = front.identity.deployment(front.identity.organization().id).deployment
    strange = change(front, admin, made.id, daemonIdentityId=str(elsewhere.daemon_identity_id))
    unknown = change(front, admin, made.id, daemonIdentityId=str(uuid4()))
    assert (strange.status_code, strange.get_json()["code"]) == (
        unknown.status_code,
        unknown.get_json()["code"],
    )
    refuse(strange, 404, "not_found")


def test_nobody_gives_a_deployment_more_than_they_hold(
    front: Front, organization_id: UUID, admin: Person
) -> None:
    made = front.identity.deployment(organization_id).deployment
    former = made.daemon_identity_id
    succeed(change(front, admin, made.id))
    front.identity.bind_identity(organization_id, former, Role.WORKSPACE_OWNER)
    refuse(change(front, admin, made.id, daemonIdentityId=str(former)), 403, "grant_exceeds_granter")
    owner = front.identity.person(organization_id, Role.WORKSPACE_OWNER)
    succeed(change(front, owner, made.id, daemonIdentityId=str(former)))
