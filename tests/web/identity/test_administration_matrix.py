"""Permissions under /admin: every declared operation with every kind of credential.

The table lists by hand which credentials are allowed and which status the others get. The operations come from the
routes, so a new one without a row fails. Each attempt has a target of its own, and a refused one leaves no audit event.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import func, select
from werkzeug.test import TestResponse

from shared.deliveries.outbox import enqueue_delivery, give_up
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role, ScopeKind
from shared.identity.directory import role_bindings
from shared.identity.directory.deployments import CreatedDeployment, DeploymentKind, create_deployment
from shared.identity.directory.repositories import RepositoryDraft, put_repository
from shared.identity.tables import audit_events
from tests.support.data.identity import Person
from tests.support.web.openapi_documents import openapi_document
from tests.support.web.web_process import Front
from web.app import ROUTES

OPERATIONS = {
    operation.name: operation
    for routes in ROUTES
    for operation in routes.declared
    if operation.path.startswith("/admin/")
}
USERS = ("operator", "owner", "admin", "member", "stranger")
EVERYBODY = frozenset(USERS)
OPERATORS = frozenset({"operator"})
CREDIT_MANAGERS = frozenset({"operator", "owner"})
MANAGERS = frozenset({"operator", "owner", "admin"})
READERS = frozenset({"operator", "owner", "admin", "member"})


@dataclass(frozen=True, kw_only=True)
class World:
    """One organization with every kind of caller; `stranger` owns another one."""

    front: Front
    organization_id: Any
    operator: Person
    owner: Person
    admin: Person
    member: Person
    stranger: Person
    deployment: CreatedDeployment
    principal_id: Any
    distribution_token: str
    described: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A request below /admin: the rest of its path, and its body."""

    path: str
    body: Any = None


@pytest.fixture(scope="module")
def world(front: Front) -> World:
    make = front.identity
    organization_id, elsewhere = make.organization().id, make.organization("Elsewhere").id
    deployment = make.deployment(organization_id)
    principal = make.principal(organization_id)
    distribution = make.distribution(
        organization_id, principal_id=principal.id, deployment_id=deployment.deployment.id
    )
    return World(
        front=front,
        organization_id=organization_id,
        operator=make.operator(),
        owner=make.person(organization_id, Role.WORKSPACE_OWNER),
        admin=make.person(organization_id, Role.WORKSPACE_ADMIN),
        member=make.person(organization_id),
        stranger=make.person(elsewhere, Role.WORKSPACE_OWNER),
        deployment=deployment,
        principal_id=principal.id,
        distribution_token=distribution.token.value,
        described=describe_answers(),
    )


def in_organization(rest: str = "", **body: Any) -> Callable[[World], Attempt]:
    return lambda world: Attempt(path=f"organizations/{world.organization_id}{rest}", body=body or None)


def new_member(world: World) -> Attempt:
    body = {"email": address(), "role": "Member"}
    return Attempt(path=f"organizations/{world.organization_id}/members", body=body)


def new_invitation(world: World) -> Attempt:
    body = {"email": address(), "role": "Member"}
    return Attempt(path=f"organizations/{world.organization_id}/invitations", body=body)


def on_name(world: World) -> Attempt:
    return Attempt(path=f"organizations/{world.organization_id}", body={"name": uuid4().hex})


def on_policy(world: World) -> Attempt:
    body = {"policy": "limit", "spendingLimit": str(uuid4().int % 1_000_000)}
    return Attempt(path=f"organizations/{world.organization_id}/credit-policy", body=body)


def on_spending(act: str, before: str) -> Callable[[World], Attempt]:
    """Prepare the opposite state, so that the operation of each side changes something."""

    def attempt(world: World) -> Attempt:
        path = f"organizations/{world.organization_id}/credits"
        for side in (world.operator, world.owner):
            assert world.front.post(f"/admin/{path}/{before}", side.authorization).status_code == 200
        return Attempt(path=f"{path}/{act}")

    return attempt


def on_organization(act: str) -> Callable[[World], Attempt]:
    return lambda world: Attempt(path=f"organizations/{world.front.identity.organization().id}{act}")


def on_member(**body: Any) -> Callable[[World], Attempt]:
    def attempt(world: World) -> Attempt:
        someone = world.front.identity.person(world.organization_id)
        path = f"organizations/{world.organization_id}/members/{someone.user_id}"
        return Attempt(path=path, body=body or None)

    return attempt


def on_user(act: str = "") -> Callable[[World], Attempt]:
    return lambda world: Attempt(
        path=f"users/{world.front.identity.person(world.organization_id).user_id}{act}"
    )


def on_bound_key(act: str = "") -> Callable[[World], Attempt]:
    def attempt(world: World) -> Attempt:
        someone = world.front.identity.person(world.organization_id, bound=True)
        keys = world.front.get("/admin/api-keys", someone.authorization).get_json()["apiKeys"]
        return Attempt(path=f"api-keys/{keys[0]['id']}{act}")

    return attempt


def on_identity(act: str = "") -> Callable[[World], Attempt]:
    return lambda world: Attempt(
        path=f"identities/{world.front.identity.principal(world.organization_id).id}{act}"
    )


def on_binding(world: World) -> Attempt:
    subject = world.front.identity.principal(world.organization_id)
    with world.front.services.database.transaction() as session:
        binding = role_bindings.bind_identity_role(
            session,
            actor=OPERATOR,
            organization_id=world.organization_id,
            identity_id=subject.id,
            role=Role.MEMBER,
            scope_kind=ScopeKind.IDENTITY,
            scope_id=world.principal_id,
        )
    return Attempt(path=f"role-bindings/{binding.id}")


def new_binding(world: World) -> Attempt:
    subject = world.front.identity.principal(world.organization_id)
    body = {
        "subjectIdentityId": str(subject.id),
        "role": "ProjectAgent",
        "scopeKind": "Identity",
        "scopeId": str(world.principal_id),
    }
    return Attempt(path=f"organizations/{world.organization_id}/role-bindings", body=body)


def on_deployment(rest: str = "", body: Any = None) -> Callable[[World], Attempt]:
    def attempt(world: World) -> Attempt:
        made = world.front.identity.deployment(world.organization_id)
        return Attempt(path=f"deployments/{made.deployment.id}{rest}", body=body)

    return attempt


def on_repository(body: Any = None) -> Callable[[World], Attempt]:
    def attempt(world: World) -> Attempt:
        with world.front.services.database.transaction() as session:
            made = create_deployment(
                session,
                actor=OPERATOR,
                organization_id=world.organization_id,
                kind=DeploymentKind.GITHUB,
                name="Reporter",
            ).deployment
            put_repository(
                session,
                actor=OPERATOR,
                deployment_id=made.id,
                draft=RepositoryDraft(repository="acme/reporter"),
            )
        return Attempt(path=f"deployments/{made.id}/repository", body=body)

    return attempt


def on_earlier_version(world: World) -> Attempt:
    made = world.front.identity.deployment(world.organization_id)
    path = f"/admin/deployments/{made.deployment.id}/versions"
    assert world.front.post(path, world.operator.authorization, json={}).status_code == 201
    return Attempt(path=f"versions/{made.version.id}/activate")


def on_version(act: str = "") -> Callable[[World], Attempt]:
    return lambda world: Attempt(
        path=f"versions/{world.front.identity.deployment(world.organization_id).version.id}{act}"
    )


def on_credential(act: str = "") -> Callable[[World], Attempt]:
    def attempt(world: World) -> Attempt:
        made = world.front.identity.deployment(world.organization_id)
        return Attempt(path=f"client-credentials/{made.credential.credential.id}{act}")

    return attempt


def on_distribution(act: str = "", **body: Any) -> Callable[[World], Attempt]:
    def attempt(world: World) -> Attempt:
        made = world.front.identity.distribution(
            world.organization_id,
            principal_id=world.principal_id,
            deployment_id=world.deployment.deployment.id,
        )
        return Attempt(path=f"distributions/{made.distribution.id}{act}", body=body or None)

    return attempt


def on_network(world: World) -> Attempt:
    attempt = on_distribution("/networks/slack")(world)
    settings = {"signingSecret": "s" * 32, "botToken": "xoxb-" + "t" * 32}
    answer = world.front.put(
        f"/admin/{attempt.path}", world.operator.authorization, json={"settings": settings}
    )
    assert answer.status_code == 200, answer.text
    return attempt


def new_network(world: World) -> Attempt:
    body = {"settings": {"signingSecret": "s" * 32, "botToken": "xoxb-" + "t" * 32}}
    return Attempt(path=on_distribution("/networks/slack")(world).path, body=body)


def new_account(world: World) -> Attempt:
    path, target = on_distribution("/networks/slack/accounts/T1")(world).path, on_distribution()(world).path
    return Attempt(path=path, body={"targetDistributionId": target.rpartition("/")[2]})


def new_installation(world: World) -> Attempt:
    attempt = new_network(world)
    settings = attempt.body["settings"] | {"clientId": "1.2", "clientSecret": "c" * 32}
    answer = world.front.put(
        f"/admin/{attempt.path}", world.operator.authorization, json={"settings": settings}
    )
    assert answer.status_code == 200, answer.text
    target = attempt.path.split("/")[1]
    return Attempt(path=f"{attempt.path}/installations", body={"targetDistributionId": target})


def on_account(world: World) -> Attempt:
    attempt = new_account(world)
    answer = world.front.put(f"/admin/{attempt.path}", world.operator.authorization, json=attempt.body)
    assert answer.status_code == 200, answer.text
    return replace(attempt, body=None)


ENDPOINT = {"url": "https://bot.example/notifications"}


def on_endpoint(rest: str = "/notification-endpoint", body: Any = None) -> Callable[[World], Attempt]:
    def attempt(world: World) -> Attempt:
        distribution = on_distribution()(world).path
        path = f"/admin/{distribution}/notification-endpoint"
        answer = world.front.put(path, world.operator.authorization, json=ENDPOINT)
        assert answer.status_code == 200, answer.text
        return Attempt(path=distribution + rest, body=body)

    return attempt


def on_dead_notification(world: World) -> Attempt:
    return with_dead_notification(world)[1]


def on_undelivered(world: World) -> Attempt:
    return Attempt(path=f"{with_dead_notification(world)[0]}/notifications/replay", body={})


def with_dead_notification(world: World) -> tuple[str, Attempt]:
    """Return a distribution with a dead notification, and the path that resends it."""
    distribution = on_endpoint("")(world).path
    distribution_id = UUID(distribution.rpartition("/")[2])
    with world.front.services.database.transaction() as session:
        notification_id = enqueue_delivery(
            session,
            kind="distribution",
            event="file.expired",
            destination_id=distribution_id,
            organization_id=world.organization_id,
            body=b"{}",
        )
        give_up(session, destination_id=distribution_id, code="destination_gone")
    return distribution, Attempt(path=f"{distribution}/notifications/{notification_id}/resend")


def on_organization_endpoint(rest: str, body: Any = None) -> Callable[[World], Attempt]:
    def attempt(world: World) -> Attempt:
        path = f"organizations/{world.organization_id}"
        put = world.front.put(
            f"/admin/{path}/notification-endpoint", world.operator.authorization, json=ENDPOINT
        )
        assert put.status_code == 200, put.text
        return Attempt(path=path + rest, body=body)

    return attempt


def on_dead_organization_notification(world: World) -> Attempt:
    with world.front.services.database.transaction() as session:
        notification_id = enqueue_delivery(
            session,
            kind="organization",
            event="budget.share_reached",
            destination_id=world.organization_id,
            organization_id=world.organization_id,
            body=b"{}",
        )
        give_up(session, destination_id=world.organization_id, code="destination_gone")
    return Attempt(path=f"organizations/{world.organization_id}/notifications/{notification_id}/resend")


def on_undelivered_of_organization(world: World) -> Attempt:
    on_organization_endpoint("")(world)
    resend = on_dead_organization_notification(world).path
    return Attempt(path=f"{resend.partition('/notifications/')[0]}/notifications/replay", body={})


BEHAVIOR = {
    "name": "Helper",
    "kind": "script",
    "description": "Follows a script.",
    "script": "rules: [{steps: [{complete: Done}]}]",
}


def on_behavior(act: str = "", body: Any = None) -> Callable[[World], Attempt]:
    def attempt(world: World) -> Attempt:
        deployment = world.front.identity.deployment(world.organization_id).deployment
        path = f"/admin/deployments/{deployment.id}/behaviors"
        made = world.front.post(path, world.operator.authorization, json=BEHAVIOR)
        assert made.status_code == 201, made.text
        return Attempt(path=f"behaviors/{made.get_json()['id']}{act}", body=body)

    return attempt


def on_second_behavior(world: World) -> Attempt:
    deployment = world.front.identity.deployment(world.organization_id).deployment
    path = f"/admin/deployments/{deployment.id}/behaviors"
    for behavior in (BEHAVIOR, BEHAVIOR | {"name": "Second"}):
        made = world.front.post(path, world.operator.authorization, json=behavior)
        assert made.status_code == 201, made.text
    return Attempt(path=f"behaviors/{made.get_json()['id']}/make-default")


AGENT = {"url": "https://localhost"}
"""An endpoint that is refused when it is connected to."""


def on_agent(rest: str = "", body: Any = None) -> Callable[[World], Attempt]:
    def attempt(world: World) -> Attempt:
        path = f"{on_deployment()(world).path}/endpoint"
        answer = world.front.put(f"/admin/{path}", world.operator.authorization, json=AGENT)
        assert answer.status_code == 200, answer.text
        return Attempt(path=path + rest, body=body)

    return attempt


SCHEDULE = {"name": "Morning", "cron": "0 9 * * *", "message": {"parts": [{"text": "Good morning"}]}}


def on_schedule(rest: str = "", body: Any = None) -> Callable[[World], Attempt]:
    def attempt(world: World) -> Attempt:
        deployment = world.front.identity.deployment(world.organization_id).deployment
        path = f"deployments/{deployment.id}/schedules"
        made = world.front.post(f"/admin/{path}", world.operator.authorization, json=SCHEDULE)
        assert made.status_code == 201, made.text
        return Attempt(path=f"{path}/{made.get_json()['id']}{rest}", body=body)

    return attempt


def new_distribution(world: World) -> Attempt:
    body = {
        "name": "Slack",
        "networks": ["slack"],
        "principalIdentityId": str(world.principal_id),
        "deploymentId": str(world.deployment.deployment.id),
    }
    return Attempt(path=f"organizations/{world.organization_id}/distributions", body=body)


def new_organization(world: World) -> Attempt:
    return Attempt(path="organizations", body={"name": "New", "ownerId": str(world.member.user_id)})


def key_for_member(world: World) -> Attempt:
    body = {
        "name": "For them",
        "userId": str(world.front.identity.person(world.organization_id).user_id),
        "organizationId": str(world.organization_id),
    }
    return Attempt(path="api-keys", body=body)


def on_invitation(act: str = "") -> Callable[[World], Attempt]:
    return lambda world: Attempt(path=f"invitations/{invite(world)['id']}{act}")


def token_for_nobody_here(world: World) -> Any:
    return {"token": invite(world)["token"]}


def invite(world: World) -> Any:
    path = f"/admin/organizations/{world.organization_id}/invitations"
    body = {"email": address(), "role": "Member"}
    answer = world.front.post(path, world.operator.authorization, json=body)
    assert answer.status_code == 201, answer.text
    return answer.get_json()


def new_entry(entries: str) -> Callable[[World], Attempt]:
    def attempt(world: World) -> Attempt:
        body = {"amount": "1", "reference": uuid4().hex}
        return Attempt(path=f"organizations/{world.organization_id}/credits/{entries}", body=body)

    return attempt


def new_budget(world: World) -> Attempt:
    someone = world.front.identity.person(world.organization_id)
    body = {"subjectKind": "user", "subjectId": str(someone.user_id), "period": "day", "amount": "1"}
    return Attempt(path=f"organizations/{world.organization_id}/budgets", body=body)


def on_budget(body: Any = None) -> Callable[[World], Attempt]:
    def attempt(world: World) -> Attempt:
        new = new_budget(world)
        made = world.front.post(f"/admin/{new.path}", world.operator.authorization, json=new.body)
        assert made.status_code == 201, made.text
        return Attempt(path=f"{new.path}/{made.get_json()['id']}", body=body)

    return attempt


MODELS = {"models": ["acme/one"]}


def on_key_models(body: Any = None) -> Callable[[World], Attempt]:
    def attempt(world: World) -> Attempt:
        path = f"organizations/{world.organization_id}/{on_bound_key('/models')(world).path}"
        put = world.front.put(f"/admin/{path}", world.operator.authorization, json=MODELS)
        assert put.status_code == 200, put.text
        return Attempt(path=path, body=body)

    return attempt


def anywhere(path: str, make_body: Callable[[World], Any] = lambda _: None) -> Callable[[World], Attempt]:
    return lambda world: Attempt(path=path, body=make_body(world))


def address() -> str:
    return f"{uuid4().hex}@example.org"


@dataclass(frozen=True, kw_only=True)
class Row:
    """The allowed credentials, their request, and the statuses of the others.

    `outsider` is the status for another organization, and for an operator who is not allowed; `refused` for the others.
    """

    allowed: frozenset[str]
    attempt: Callable[[World], Attempt]
    outsider: int = 404
    shuts_out_operators: bool = False
    refused: int = 403
    success: int = 200


TABLE: dict[str, Row] = {
    "create_organization": Row(allowed=OPERATORS, attempt=new_organization, outsider=403, success=201),
    "list_organizations": Row(allowed=EVERYBODY, attempt=anywhere("organizations")),
    "read_organization": Row(allowed=READERS, attempt=in_organization()),
    "rename_organization": Row(allowed=MANAGERS, attempt=on_name),
    "suspend_organization": Row(allowed=OPERATORS, attempt=on_organization("/suspend"), outsider=403),
    "resume_organization": Row(allowed=OPERATORS, attempt=on_organization("/resume"), outsider=403),
    "add_member": Row(
        allowed=OPERATORS,
        attempt=new_member,
        success=201,
    ),
    "create_invitation": Row(
        allowed=MANAGERS,
        attempt=new_invitation,
        success=201,
    ),
    "list_invitations": Row(allowed=MANAGERS, attempt=in_organization("/invitations")),
    "read_invitation": Row(allowed=MANAGERS, attempt=on_invitation()),
    "revoke_invitation": Row(allowed=MANAGERS, attempt=on_invitation("/revoke")),
    # An invitation is its invitee's alone, whatever they are elsewhere: tests/web/identity/test_invitations.py.
    "accept_invitation": Row(
        allowed=frozenset(), attempt=anywhere("invitations/accept", token_for_nobody_here), refused=404
    ),
    "list_members": Row(allowed=READERS, attempt=in_organization("/members")),
    "read_member": Row(allowed=READERS, attempt=on_member()),
    "change_member_role": Row(allowed=MANAGERS, attempt=on_member(role="WorkspaceAdmin")),
    "remove_member": Row(allowed=MANAGERS, attempt=on_member(), success=204),
    "list_audit_events": Row(allowed=MANAGERS, attempt=in_organization("/audit-events")),
    "read_me": Row(allowed=EVERYBODY, attempt=anywhere("me")),
    "select_active_organization": Row(
        allowed=frozenset({"owner", "admin", "member"}),
        attempt=anywhere(
            "me/active-organization", lambda world: {"organizationId": str(world.organization_id)}
        ),
        refused=404,
    ),
    "create_user": Row(
        allowed=OPERATORS,
        attempt=anywhere("users", lambda _: {"email": address()}),
        outsider=403,
        success=201,
    ),
    "list_users": Row(allowed=OPERATORS, attempt=anywhere("users"), outsider=403),
    "read_user": Row(allowed=OPERATORS, attempt=on_user(), refused=404),
    "disable_user": Row(allowed=OPERATORS, attempt=on_user("/disable"), outsider=403),
    "enable_user": Row(allowed=OPERATORS, attempt=on_user("/enable"), outsider=403),
    "issue_api_key": Row(allowed=OPERATORS, attempt=key_for_member, outsider=403, success=201),
    "list_api_keys": Row(allowed=EVERYBODY, attempt=anywhere("api-keys")),
    "list_organization_api_keys": Row(allowed=MANAGERS, attempt=in_organization("/api-keys")),
    "read_api_key": Row(allowed=MANAGERS, attempt=on_bound_key()),
    "revoke_api_key": Row(allowed=MANAGERS, attempt=on_bound_key("/revoke")),
    "create_principal_identity": Row(
        allowed=MANAGERS, attempt=in_organization("/identities", name="Mailbox"), success=201
    ),
    "list_identities": Row(allowed=READERS, attempt=in_organization("/identities")),
    "read_identity": Row(allowed=READERS, attempt=on_identity()),
    "disable_identity": Row(allowed=MANAGERS, attempt=on_identity("/disable")),
    "enable_identity": Row(allowed=MANAGERS, attempt=on_identity("/enable")),
    "bind_role": Row(allowed=MANAGERS, attempt=new_binding, success=201),
    "list_role_bindings": Row(allowed=READERS, attempt=in_organization("/role-bindings")),
    "read_role_binding": Row(allowed=READERS, attempt=on_binding),
    "unbind_role": Row(allowed=MANAGERS, attempt=on_binding, success=204),
    "create_deployment": Row(
        allowed=MANAGERS, attempt=in_organization("/deployments", name="Agent"), success=201
    ),
    "list_deployments": Row(allowed=READERS, attempt=in_organization("/deployments")),
    "read_deployment": Row(allowed=READERS, attempt=on_deployment()),
    "disable_deployment": Row(allowed=MANAGERS, attempt=on_deployment("/disable")),
    "enable_deployment": Row(allowed=MANAGERS, attempt=on_deployment("/enable")),
    "change_daemon": Row(allowed=MANAGERS, attempt=on_deployment("/daemon-identity", {})),
    "put_repository": Row(allowed=MANAGERS, attempt=on_repository({"repository": "acme/other"})),
    "read_repository": Row(allowed=READERS, attempt=on_repository()),
    "remove_repository": Row(allowed=MANAGERS, attempt=on_repository(), success=204),
    "create_behavior": Row(allowed=MANAGERS, attempt=on_deployment("/behaviors", BEHAVIOR), success=201),
    "list_behaviors": Row(allowed=MANAGERS, attempt=on_deployment("/behaviors")),
    "read_behavior": Row(allowed=MANAGERS, attempt=on_behavior()),
    "replace_behavior": Row(allowed=MANAGERS, attempt=on_behavior(body=BEHAVIOR | {"tags": ["new"]})),
    "make_default_behavior": Row(allowed=MANAGERS, attempt=on_second_behavior),
    "remove_behavior": Row(allowed=MANAGERS, attempt=on_behavior(), success=204),
    "put_endpoint": Row(allowed=MANAGERS, attempt=on_agent(body=AGENT)),
    "read_endpoint": Row(allowed=MANAGERS, attempt=on_agent()),
    "check_endpoint": Row(allowed=MANAGERS, attempt=on_agent("/check")),
    "remove_endpoint": Row(allowed=MANAGERS, attempt=on_agent(), success=204),
    "create_schedule": Row(allowed=MANAGERS, attempt=on_deployment("/schedules", SCHEDULE), success=201),
    "list_schedules": Row(allowed=MANAGERS, attempt=on_deployment("/schedules")),
    "read_schedule": Row(allowed=MANAGERS, attempt=on_schedule()),
    "replace_schedule": Row(allowed=MANAGERS, attempt=on_schedule(body=SCHEDULE | {"name": "Later"})),
    "disable_schedule": Row(allowed=MANAGERS, attempt=on_schedule("/disable")),
    "enable_schedule": Row(allowed=MANAGERS, attempt=on_schedule("/enable")),
    "delete_schedule": Row(allowed=MANAGERS, attempt=on_schedule(), success=204),
    "list_runs": Row(allowed=MANAGERS, attempt=on_schedule("/runs")),
    "deploy_version": Row(allowed=MANAGERS, attempt=on_deployment("/versions", {}), success=201),
    "list_deployed_versions": Row(allowed=READERS, attempt=on_deployment("/versions")),
    "read_deployed_version": Row(allowed=READERS, attempt=on_version()),
    "activate_version": Row(allowed=MANAGERS, attempt=on_earlier_version),
    "revoke_version": Row(allowed=MANAGERS, attempt=on_version("/revoke")),
    "issue_client_credential": Row(
        allowed=MANAGERS, attempt=on_deployment("/client-credentials", {}), success=201
    ),
    "list_client_credentials": Row(allowed=MANAGERS, attempt=on_deployment("/client-credentials")),
    "read_client_credential": Row(allowed=MANAGERS, attempt=on_credential()),
    "revoke_client_credential": Row(allowed=MANAGERS, attempt=on_credential("/revoke")),
    "create_distribution": Row(allowed=MANAGERS, attempt=new_distribution, success=201),
    "list_distributions": Row(allowed=READERS, attempt=in_organization("/distributions")),
    "read_distribution": Row(allowed=READERS, attempt=on_distribution()),
    "update_distribution": Row(allowed=MANAGERS, attempt=on_distribution(name="Another")),
    "disable_distribution": Row(allowed=MANAGERS, attempt=on_distribution("/disable")),
    "enable_distribution": Row(allowed=MANAGERS, attempt=on_distribution("/enable")),
    "rotate_distribution_token": Row(allowed=MANAGERS, attempt=on_distribution("/rotate-token")),
    "rotate_webhook_secret": Row(allowed=MANAGERS, attempt=on_distribution("/rotate-webhook-secret")),
    "begin_installation": Row(allowed=MANAGERS, attempt=new_installation),
    "put_network_account": Row(allowed=MANAGERS, attempt=new_account),
    "list_network_accounts": Row(allowed=MANAGERS, attempt=on_distribution("/networks/slack/accounts")),
    "remove_network_account": Row(allowed=MANAGERS, attempt=on_account, success=204),
    "put_network_settings": Row(allowed=MANAGERS, attempt=new_network),
    "read_network_settings": Row(allowed=MANAGERS, attempt=on_network),
    "remove_network_settings": Row(allowed=MANAGERS, attempt=on_network, success=204),
    "put_notification_endpoint": Row(
        allowed=MANAGERS, attempt=on_distribution("/notification-endpoint", **ENDPOINT)
    ),
    "read_notification_endpoint": Row(allowed=MANAGERS, attempt=on_endpoint()),
    "remove_notification_endpoint": Row(allowed=MANAGERS, attempt=on_endpoint(), success=204),
    "list_notifications": Row(allowed=MANAGERS, attempt=on_endpoint("/notifications")),
    "resend_notification": Row(allowed=MANAGERS, attempt=on_dead_notification),
    "resend_dead_notifications": Row(allowed=MANAGERS, attempt=on_endpoint("/notifications/resend-dead")),
    "replay_notifications": Row(allowed=MANAGERS, attempt=on_undelivered),
    "put_organization_endpoint": Row(
        allowed=MANAGERS, attempt=in_organization("/notification-endpoint", **ENDPOINT)
    ),
    "read_organization_endpoint": Row(
        allowed=MANAGERS, attempt=on_organization_endpoint("/notification-endpoint")
    ),
    "remove_organization_endpoint": Row(
        allowed=MANAGERS, attempt=on_organization_endpoint("/notification-endpoint"), success=204
    ),
    "list_organization_notifications": Row(
        allowed=MANAGERS, attempt=on_organization_endpoint("/notifications")
    ),
    "replay_organization_notifications": Row(allowed=MANAGERS, attempt=on_undelivered_of_organization),
    "resend_organization_notification": Row(allowed=MANAGERS, attempt=on_dead_organization_notification),
    "list_signing_keys": Row(allowed=OPERATORS, attempt=anywhere("signing-keys"), outsider=403),
    "rotate_signing_keys": Row(
        allowed=OPERATORS, attempt=anywhere("signing-keys/rotate"), outsider=403, success=409
    ),
    "revoke_signing_key": Row(
        allowed=OPERATORS, attempt=anywhere("signing-keys/unknown/revoke"), outsider=403, success=404
    ),
    "read_organization_credits": Row(allowed=MANAGERS, attempt=in_organization("/credits")),
    "read_organization_storage": Row(allowed=MANAGERS, attempt=in_organization("/storage-usage")),
    "list_credit_entries": Row(allowed=MANAGERS, attempt=in_organization("/credits/entries")),
    "list_holds": Row(allowed=MANAGERS, attempt=in_organization("/credits/holds")),
    "list_organization_tasks": Row(
        allowed=MANAGERS - OPERATORS, shuts_out_operators=True, attempt=in_organization("/tasks")
    ),
    "list_credit_statements": Row(allowed=MANAGERS, attempt=in_organization("/credits/statements")),
    "get_credit_statement": Row(
        allowed=MANAGERS, attempt=in_organization(f"/credits/statements/{datetime.now(UTC):%Y-%m}")
    ),
    "top_up_credits": Row(
        allowed=OPERATORS,
        attempt=new_entry("top-ups"),
        success=201,
    ),
    "adjust_credits": Row(
        allowed=OPERATORS,
        attempt=new_entry("adjustments"),
        success=201,
    ),
    "set_credit_policy": Row(allowed=CREDIT_MANAGERS, attempt=on_policy),
    "suspend_spending": Row(allowed=CREDIT_MANAGERS, attempt=on_spending("suspend", "resume")),
    "resume_spending": Row(allowed=CREDIT_MANAGERS, attempt=on_spending("resume", "suspend")),
    "create_budget": Row(allowed=CREDIT_MANAGERS, attempt=new_budget, success=201),
    "list_budgets": Row(allowed=READERS, attempt=in_organization("/budgets")),
    "read_budget": Row(allowed=MANAGERS, attempt=on_budget(), refused=404),
    "change_budget": Row(allowed=CREDIT_MANAGERS, attempt=on_budget({"amount": "2"})),
    "delete_budget": Row(allowed=CREDIT_MANAGERS, attempt=on_budget(), success=204),
    "put_key_models": Row(allowed=CREDIT_MANAGERS, attempt=on_key_models({"models": ["acme/two"]})),
    "read_key_models": Row(allowed=MANAGERS, attempt=on_key_models()),
    "remove_key_models": Row(allowed=CREDIT_MANAGERS, attempt=on_key_models(), success=204),
}


def test_every_administrative_operation_has_a_row() -> None:
    assert set(TABLE) == set(OPERATIONS)


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("name", TABLE)
def test_an_operation_lets_in_whom_the_table_names(world: World, name: str, user: str) -> None:
    row, person = TABLE[name], getattr(world, user)
    attempt = row.attempt(world)
    is_outside = user == "stranger" or (user == "operator" and row.shuts_out_operators)
    before = count_acts(world)
    answer = ask(world, name, attempt, person.authorization)
    if user in row.allowed:
        assert answer.status_code == row.success, answer.text
    else:
        assert answer.status_code == (row.outsider if is_outside else row.refused), answer.text
        code = {403: "permission_denied", 404: "not_found"}[answer.status_code]
        assert answer.get_json()["code"] == code
        assert count_acts(world) == before


@pytest.mark.parametrize("name", TABLE)
def test_an_operation_turns_away_whoever_is_no_user(world: World, name: str) -> None:
    attempt = TABLE[name].attempt(world)
    before = count_acts(world)
    for authorization, status, code in (
        (None, 401, "authentication_required"),
        ("Bearer svk_unknown", 401, "invalid_token"),
        (f"Basic {world.owner.api_key}", 401, "authentication_required"),
        (world.front.identity.authorization(world.deployment), 403, "permission_denied"),
        (f"Bearer {world.distribution_token}", 403, "permission_denied"),
    ):
        answer = ask(world, name, attempt, authorization)
        assert (answer.status_code, answer.get_json()["code"]) == (status, code)
    assert count_acts(world) == before


def ask(world: World, name: str, attempt: Attempt, authorization: str | None) -> TestResponse:
    """Send a request, and check its response against the operation in the OpenAPI document."""
    options = {} if attempt.body is None else {"json": attempt.body}
    answer = world.front.ask(OPERATIONS[name].method, f"/admin/{attempt.path}", authorization, **options)
    described = world.described[name][str(answer.status_code)]
    if answer.status_code >= 400:
        schema = described["content"]["application/problem+json"]["schema"]
        assert answer.get_json()["code"] in schema["properties"]["code"]["enum"]
    return answer


def count_acts(world: World) -> int:
    with world.front.services.database.transaction() as session:
        count: int = session.execute(select(func.count()).select_from(audit_events)).scalar_one()
    return count


def describe_answers() -> dict[str, Any]:
    """Return the responses in the OpenAPI document, by operation and status."""
    paths = openapi_document()["paths"].values()
    operations = [operation for path in paths for operation in path.values()]
    return {operation["operationId"]: operation["responses"] for operation in operations}


CHANGE_NOTHING = {
    *("resume_organization", "enable_user", "enable_identity", "enable_deployment", "enable_distribution"),
    *("enable_schedule", "resend_dead_notifications", "rotate_signing_keys", "revoke_signing_key"),
    *("accept_invitation", "check_endpoint", "select_active_organization"),
}
"""What the table's attempts leave as it was: enabled already, refused to all, or only looked at."""


@pytest.mark.parametrize(
    "name", [name for name in TABLE if OPERATIONS[name].method != "GET" and name not in CHANGE_NOTHING]
)
def test_a_change_is_recorded(world: World, name: str) -> None:
    row = TABLE[name]
    attempt = row.attempt(world)
    before = count_acts(world)
    who = world.operator if "operator" in row.allowed else world.owner
    ask(world, name, attempt, who.authorization)
    assert count_acts(world) > before
