"""No credential reaches resources of another organization: every operation of the OpenAPI document.

Requests are generated from the document, so a new operation is covered at once. It fails here if its request needs
something that no schema describes (`BODIES`), or a resource that `World.resources` does not have.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import func, select, update
from werkzeug.test import TestResponse

from shared.deliveries.outbox import enqueue_delivery, give_up
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.identity.directory.deployments import CreatedDeployment
from shared.identity.directory.distributions import CreatedDistribution
from shared.identity.sign_in.console_sessions import issue_link, sign_in
from shared.identity.tables import audit_events, deployments
from tests.support.agents.agent_worker import answering_turns
from tests.support.data.identity import Person
from tests.support.web.openapi_documents import openapi_document
from tests.support.web.request_examples import CONTENT, RequestExamples
from tests.support.web.web_process import Front
from tests.web.media.conftest import sign
from web.console.csrf import token_for
from web.console.routes import PAGES

DOCUMENT = openapi_document()
OPERATIONS: dict[str, tuple[str, str, Any]] = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    if operation["security"] and not operation["operationId"].startswith("head_")  # HEAD has GET's handler.
}
EXAMPLES = RequestExamples(DOCUMENT)
REFUSALS = (401, 403, 404)
SHARED = {"model", "kid", "network", "kind", "referenceId"}
"""Path parameters that name no resource of an organization."""

SCRIPT = "rules: [{steps: [{complete: Done}]}]"
BEHAVIOR = {"name": "Helper", "kind": "script", "description": "Follows a script.", "script": SCRIPT}
MESSAGE = {"message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}
SCHEDULE = {"name": "Morning", "cron": "0 9 * * *", "message": {"parts": [{"text": "Good morning"}]}}
SLACK = {"settings": {"signingSecret": "s" * 32, "botToken": "xoxb-" + "t" * 32}}
ENDPOINT = {"url": "https://agent.example"}
PUSH = {"url": "https://client.example/updates"}
REPOSITORY = {"repository": "acme/reporter"}
MEDIA = {
    "messageId": "m",
    "attachmentId": "a",
    "url": "https://media.example/a.png",
    "fileName": "a.png",
    "mediaType": "image/png",
}
PROMPT = {"model": "scripted/echo", "messages": [{"role": "user", "content": "Hi"}]}
BODIES: dict[str, Any] = {
    "renew_retention": {"retentionExpiresAt": "2100-01-01T00:00:00Z"},
    "create_chat_completion": {"model": "scripted/echo", "messages": [{"role": "user", "content": "Hi"}]},
    "create_response": {"model": "scripted/echo", "store": False, "input": "Hi"},
    "create_message": {**PROMPT, "max_tokens": 9},
    "count_message_tokens": PROMPT,
    "create_invitation": {"email": "nobody@example.org", "role": "Member"},
    "create_behavior": BEHAVIOR,
    "replace_behavior": BEHAVIOR,
    "create_schedule": SCHEDULE,
    "replace_schedule": SCHEDULE,
    "put_network_settings": SLACK,
    "put_notification_endpoint": {"url": "https://bot.example/notifications"},
    "put_organization_endpoint": {"url": "https://bot.example/notifications"},
    "put_endpoint": ENDPOINT,
    "bind_role": {
        "subjectIdentityId": str(uuid4()),
        "role": "ProjectAgent",
        "scopeKind": "Identity",
        "scopeId": str(uuid4()),
    },
    "put_repository": REPOSITORY,
    "create_budget": {"subjectKind": "user", "subjectId": str(uuid4()), "period": "day", "amount": "1"},
    "put_key_models": {"models": ["scripted/echo"]},
    "push_media": MEDIA,
    "push_message": {"messageId": "m", "text": "hello"},
    **dict.fromkeys(("send_message", "send_message_of_agent"), MESSAGE),
    **dict.fromkeys(("stream_message", "stream_message_of_agent"), MESSAGE),
    **dict.fromkeys(("create_push_configuration", "create_push_configuration_of_agent"), PUSH),
}


@dataclass(frozen=True, kw_only=True)
class World:
    """Acme's resources by path parameter, and the credentials of Acme and of Globex as headers."""

    front: Front
    acme: UUID
    resources: dict[str, str]
    file_version: str
    insiders: dict[str, dict[str, str]]
    outsiders: dict[str, dict[str, str]]
    client: str = field(repr=False)
    webhook_secret: str = field(repr=False)
    """Globex's client credentials, as Basic authentication, and the signing secret of its distribution."""
    secrets: list[str] = field(repr=False)

    def path(self, template: str) -> str:
        """Fill a path with Acme's resources."""
        resources = dict(self.resources)
        if template.startswith("/files"):
            resources["versionId"] = self.file_version
        return re.sub(r"\{(\w+)\}", lambda match: resources[match[1]], template)

    def ask(self, name: str, headers: dict[str, str]) -> TestResponse:
        """Call an operation on Acme's resources."""
        method, template, operation = OPERATIONS[name]
        body = EXAMPLES.body(operation, BODIES.get(name))
        query = EXAMPLES.query(operation)
        if name == "download_content":
            query["versionId"] = self.file_version
        return self.front.client.open(
            self.path(template), method=method, headers=headers, query_string=query, buffered=True, **body
        )

    def count_acts(self) -> int:
        statement = select(func.count()).where(audit_events.c.organization_id == self.acme)
        with self.front.services.database.transaction() as session:
            return int(session.execute(statement).scalar_one())


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """An organization with an agent, a distribution, and all kinds of callers."""

    organization_id: UUID
    deployment: CreatedDeployment
    principal_id: UUID
    distribution: CreatedDistribution
    credentials: dict[str, dict[str, str]]


def make_tenant(front: Front, name: str) -> Tenant:
    make = front.identity
    organization_id = make.organization(name).id
    deployment, principal = make.deployment(organization_id), make.principal(organization_id)
    distribution = make.distribution(
        organization_id, principal_id=principal.id, deployment_id=deployment.deployment.id
    )
    token = make.authorization(deployment)
    attribution = make.attribution(distribution)
    credentials = {
        "owner": bearer(make.person(organization_id, Role.WORKSPACE_OWNER).authorization),
        "admin": bearer(make.person(organization_id, Role.WORKSPACE_ADMIN).authorization),
        "member": bearer(make.person(organization_id).authorization),
        "bound key": bearer(make.person(organization_id, Role.WORKSPACE_OWNER, bound=True).authorization),
        "deployment": bearer(token),
        "deployment, attributed": {**bearer(token), "Service-Usage-Attribution": attribution},
        "distribution": bearer(f"Bearer {distribution.token.value}"),
    }
    return Tenant(
        organization_id=organization_id,
        deployment=deployment,
        principal_id=principal.id,
        distribution=distribution,
        credentials=credentials,
    )


def basic(deployment: CreatedDeployment) -> str:
    client = f"{deployment.deployment.client_id}:{deployment.credential.secret.value}"
    return f"Basic {b64encode(client.encode()).decode()}"


def bearer(authorization: str) -> dict[str, str]:
    return {"Authorization": authorization}


@pytest.fixture(scope="module")
def world(front: Front) -> Iterator[World]:
    acme, globex = make_tenant(front, "Acme"), make_tenant(front, "Globex")
    with answering_turns(front.services):
        resources = make_resources(front, acme)
        stolen = {
            **globex.credentials["deployment"],
            "Service-Usage-Attribution": acme.credentials["deployment, attributed"][
                "Service-Usage-Attribution"
            ],
        }
        file_version = resources.pop("fileVersion")
        yield World(
            front=front,
            acme=acme.organization_id,
            resources=resources,
            file_version=file_version,
            insiders=acme.credentials,
            outsiders={**globex.credentials, "deployment, another's attribution": stolen, "nobody": {}},
            client=basic(globex.deployment),
            webhook_secret=globex.distribution.webhook_secret.value,
            secrets=[*resources.values(), file_version, str(acme.organization_id)],
        )
    front.services.agents.watch.close()


def make_resources(front: Front, acme: Tenant) -> dict[str, str]:
    """Create one resource for each path parameter."""
    deployment_id, distribution_id = (
        str(acme.deployment.deployment.id),
        str(acme.distribution.distribution.id),
    )
    organization_id = str(acme.organization_id)

    def make(path: str, body: Any = None, *, method: str = "POST", by: str = "owner", **options: Any) -> Any:
        sent = options or ({} if body is None else {"json": body})
        answer = front.client.open(path, method=method, headers=acme.credentials[by], **sent)
        assert answer.status_code < 400, (path, answer.text)
        return answer.get_json()

    upload = {"operationId": str(uuid4()), "byteSize": str(len(CONTENT))}
    form = EXAMPLES.body(OPERATIONS["upload_agent_artifact"][2])
    file = make("/files/agent-artifacts", by="deployment", query_string=upload, **form)
    upload_id = begin_upload(front, acme)
    with front.services.database.transaction() as session:
        of_github = update(deployments).where(deployments.c.id == acme.deployment.deployment.id)
        session.execute(of_github.values(kind="GitHub"))
    make(f"/admin/deployments/{deployment_id}/repository", REPOSITORY, method="PUT")
    grant = make(f"/files/{file['id']}/versions/{file['versionId']}/grants")
    make(f"/files/{file['id']}/references/Task/reference-1", method="PUT")
    behavior = make(f"/admin/deployments/{deployment_id}/behaviors", BEHAVIOR)
    schedule = make(f"/admin/deployments/{deployment_id}/schedules", SCHEDULE)
    task = make(f"/agents/{deployment_id}/message:send", MESSAGE)["task"]
    configuration = make(f"/tasks/{task['id']}/pushNotificationConfigs", PUSH)
    imported = make(f"/distributions/{distribution_id}/media", MEDIA, by="distribution")
    identity = make(f"/admin/organizations/{organization_id}/identities", {"name": "Mailbox"})
    binding = {
        "subjectIdentityId": identity["id"],
        "role": "ProjectAgent",
        "scopeKind": "Identity",
        "scopeId": str(acme.principal_id),
    }
    bound = make(f"/admin/organizations/{organization_id}/role-bindings", binding)
    invited = {"email": f"{uuid4().hex}@example.org", "role": "Member"}
    invitation = make(f"/admin/organizations/{organization_id}/invitations", invited)
    key = make("/admin/api-keys", {"name": "Bound", "organizationId": organization_id})
    budget = {"subjectKind": "api_key", "subjectId": key["id"], "period": "month", "amount": "1"}
    budgeted = make(f"/admin/organizations/{organization_id}/budgets", budget)
    models = f"/admin/organizations/{organization_id}/api-keys/{key['id']}/models"
    make(models, {"models": ["scripted/echo"]}, method="PUT")
    make(f"/admin/distributions/{distribution_id}/networks/slack", SLACK, method="PUT")
    account = {"targetDistributionId": distribution_id}
    make(f"/admin/distributions/{distribution_id}/networks/slack/accounts/T1", account, method="PUT")
    make(f"/admin/deployments/{deployment_id}/endpoint", ENDPOINT, method="PUT")
    endpoint = {"url": "https://bot.example/notifications"}
    make(f"/admin/distributions/{distribution_id}/notification-endpoint", endpoint, method="PUT")
    make(f"/admin/organizations/{organization_id}/notification-endpoint", endpoint, method="PUT")
    return {
        "organizationId": organization_id,
        "userId": make("/admin/me", method="GET")["id"],
        "keyId": key["id"],
        "budgetId": budgeted["id"],
        "invitationId": invitation["id"],
        "identityId": identity["id"],
        "bindingId": bound["id"],
        "deploymentId": deployment_id,
        "versionId": str(acme.deployment.version.id),
        "credentialId": str(acme.deployment.credential.credential.id),
        "distributionId": distribution_id,
        "behaviorId": behavior["id"],
        "scheduleId": schedule["id"],
        "notificationId": make_notification(front, acme),
        "fileId": file["id"],
        "fileVersion": file["versionId"],
        "grantId": grant["id"],
        "uploadId": upload_id,
        "importId": imported["importId"],
        "taskId": task["id"],
        "configId": configuration["id"],
        "model": "scripted/echo",
        "network": "slack",
        "account": "T1",
        "source": "unknown",
        "month": f"{datetime.now(UTC):%Y-%m}",
        "kind": "Task",
        "referenceId": "reference-1",
        "kid": "unknown",
    }


def begin_upload(front: Front, acme: Tenant) -> str:
    """Start a resumable upload. Return its id."""
    headers = {
        **acme.credentials["deployment"],
        "Upload-Complete": "?0",
        "Content-Disposition": "attachment; filename=a.txt",
        "Content-Type": "text/plain",
    }
    query = {"operationId": str(uuid4()), "byteSize": "7"}
    answer = front.client.post("/files/agent-artifacts", headers=headers, query_string=query)
    return answer.headers["Location"].rpartition("/")[2]


def make_notification(front: Front, acme: Tenant) -> str:
    distribution_id = acme.distribution.distribution.id
    with front.services.database.transaction() as session:
        notification_id = enqueue_delivery(
            session,
            kind="distribution",
            event="file.expired",
            destination_id=distribution_id,
            organization_id=acme.organization_id,
            body=b"{}",
        )
        give_up(session, destination_id=distribution_id, code="destination_gone")
    return str(notification_id)


def names_a_resource(name: str) -> bool:
    """Return whether an operation's path names a resource. A browser's preflight is the same for every URL."""
    return OPERATIONS[name][0] != "OPTIONS" and bool(
        set(re.findall(r"\{(\w+)\}", OPERATIONS[name][1])) - SHARED
    )


NAMING = [name for name in OPERATIONS if names_a_resource(name)]
OTHERS = [name for name in OPERATIONS if not names_a_resource(name)]


def test_matrix_covers_the_whole_document() -> None:
    described = [operation for methods in DOCUMENT["paths"].values() for operation in methods.values()]
    protected = {operation["operationId"] for operation in described if operation["security"]}
    heads = {name for name in protected if name.startswith("head_")}
    assert {name.removeprefix("head_") for name in heads} <= protected
    assert protected - heads == {*NAMING, *OTHERS}


@pytest.mark.parametrize("name", NAMING)
def test_resource_is_inaccessible_to_other_organizations(world: World, name: str) -> None:
    before = world.count_acts()
    for kind, headers in world.outsiders.items():
        answer = world.ask(name, headers)
        assert answer.status_code in REFUSALS, (kind, answer.status_code, answer.text)
        assert_tells_nothing(world, name, answer)
    assert world.count_acts() == before


@pytest.mark.parametrize("name", OTHERS)
def test_operation_without_a_resource_shows_none_of_another_organization(world: World, name: str) -> None:
    before = world.count_acts()
    for headers in world.outsiders.values():
        answer = world.ask(name, headers)
        assert answer.status_code not in (400, 422) or "billing_organization_required" in answer.text, (
            answer.text
        )
        assert_tells_nothing(world, name, answer)
    assert world.count_acts() == before


@pytest.mark.parametrize("name", [name for name in NAMING if OPERATIONS[name][0] == "GET"])
def test_resources_of_the_matrix_exist(world: World, name: str) -> None:
    """Without this, a wrong URL would look like a refusal."""
    if "webhooks" in OPERATIONS[name][1] or ":subscribe" in OPERATIONS[name][1]:
        pytest.skip("a signed request, or the stream of a task that may have ended")
    statuses = {kind: world.ask(name, headers).status_code for kind, headers in world.insiders.items()}
    assert 200 in statuses.values(), statuses


def test_client_cannot_introspect_or_revoke_anothers_token(world: World) -> None:
    token = {"token": world.insiders["deployment"]["Authorization"].removeprefix("Bearer ")}
    told = world.front.post("/oauth/introspect", world.client, data=token)
    assert (told.status_code, told.get_json()) == (200, {"active": False})
    assert world.front.post("/oauth/revoke", world.client, data=token).status_code == 200
    assert world.ask("read_metadata", world.insiders["deployment"]).status_code == 200


def test_push_signed_by_another_distribution_is_refused(world: World) -> None:
    body = json.dumps(MEDIA).encode()
    headers = {**sign(body, world.webhook_secret), "Content-Type": "application/json"}
    path = world.path(OPERATIONS["push_media"][1])
    answer = world.front.client.post(path, data=body, headers=headers)
    assert answer.status_code == 401
    assert_tells_nothing(world, "push_media", answer)


def assert_tells_nothing(world: World, name: str, answer: TestResponse) -> None:
    """Check that a response contains no id of Acme, except those in the URL."""
    asked = world.path(OPERATIONS[name][1])
    told = [
        secret
        for secret in world.secrets
        if len(secret) > 30 and secret in answer.text and secret not in asked
    ]
    assert told == [], answer.text


CONSOLE = {f"{route.method} {route.path}": route for routes in PAGES for route in routes.declared}
FORM = {
    "email": "nobody@example.org",
    "role": "Member",
    "amount": "1",
    "name": "Bound",
    "until": "2100-01-01",
    "message": "Hello",
    "model:x": "on",
    "since": "2026-01-01",
}
"""Fields that make forms valid, so that only the resource they name can be the reason of a refusal."""


def visit(world: World, name: str, person: Person) -> TestResponse:
    """Open a console page, or send its form, about Acme's resources with a person's session."""
    front, route = world.front, CONSOLE[name]
    with front.services.database.transaction() as session:
        link = issue_link(session, actor=OPERATOR, user_id=person.user_id)
        begun = sign_in(session, link.code.value)
    assert begun is not None
    cookie = begun.token.value
    acme = {
        "organization": str(world.acme),
        "scope": world.resources["identityId"],
        "version": world.file_version,
    }
    named = {"subject": world.resources["identityId"] if "bindings" in name else f"user:{person.user_id}"}
    form = {"csrf": token_for(cookie), **FORM, **acme, **named}
    path = re.sub(r"<\w+:(\w+)>", lambda match: world.resources[_camel(match[1])], route.path)
    return front.app.test_client(use_cookies=False).open(
        path,
        method=route.method,
        headers={"Cookie": f"__Host-qm={cookie}", "Sec-Fetch-Site": "same-origin"},
        data=form if route.method == "POST" else None,
        buffered=True,
    )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


@pytest.fixture(scope="module")
def visitors(world: World) -> list[Person]:
    """People of another organization."""
    make = world.front.identity
    initech = make.organization("Initech")
    return [
        make.person(initech.id, role) for role in (Role.WORKSPACE_OWNER, Role.WORKSPACE_ADMIN, Role.MEMBER)
    ]


@pytest.mark.parametrize("name", CONSOLE)
def test_console_has_no_access_to_another_organization(
    world: World, visitors: list[Person], name: str
) -> None:
    before = world.count_acts()
    for person in visitors:
        answer = visit(world, name, person)
        if "<id:" in CONSOLE[name].path:
            assert answer.status_code in REFUSALS, (name, answer.status_code)
        named = re.findall(r"<\w+:(\w+)>", CONSOLE[name].path)
        asked = {world.resources[_camel(at)] for at in named}
        told = [at for at in world.secrets if len(at) > 30 and at in answer.text and at not in asked]
        assert told == [], answer.text
    assert world.count_acts() == before


@pytest.mark.parametrize("name", [name for name in CONSOLE if name.startswith("GET") and "<id:" in name])
def test_pages_of_the_matrix_exist(world: World, name: str) -> None:
    """Without this, a wrong URL would look like a refusal."""
    assert (
        visit(world, name, world.front.identity.person(world.acme, Role.WORKSPACE_OWNER)).status_code == 200
    )
