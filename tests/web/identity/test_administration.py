"""Administration over HTTP: create, list, change and refuse resources, and return a secret only once."""

from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import func, update

from shared.identity.access.roles import Role
from shared.identity.tables import signing_keys
from tests.support.data.identity import Person
from tests.support.web.web_process import BASE_URL, Front


@pytest.fixture
def admin(front: Front, organization_id: UUID) -> Person:
    return front.identity.person(organization_id, Role.WORKSPACE_ADMIN)


def make(front: Front, person: Person, path: str, **body: Any) -> dict[str, Any]:
    """Create a resource, and read it again at the `Location` of the response."""
    answer = front.post(f"/admin{path}", person.authorization, json=body)
    assert answer.status_code == 201, answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    created: dict[str, Any] = answer.get_json()
    location = answer.headers["Location"]
    assert location.startswith(f"{BASE_URL}/admin/")
    read = front.get(location.removeprefix(BASE_URL), person.authorization).get_json()
    assert read.items() <= created.items()
    return created


def refusal(answer: Any) -> tuple[int, str]:
    assert answer.content_type == "application/problem+json"
    return answer.status_code, answer.get_json()["code"]


def test_an_operator_sets_up_an_organization_and_its_owner_goes_on(front: Front) -> None:
    operator = front.identity.operator()
    email = f"{uuid4().hex}@example.org"
    user = make(front, operator, "/users", email=email)
    organization = make(front, operator, "/organizations", name="Acme", ownerId=user["id"])
    key = make(front, operator, "/api-keys", name="First", userId=user["id"])
    owner = Person(user_id=UUID(user["id"]), email=email, api_key=key["apiKey"])
    me = front.get("/admin/me", owner.authorization).get_json()
    assert (me["email"], me["activeOrganizationId"]) == (email, organization["id"])
    listed = front.get("/admin/organizations", owner.authorization).get_json()
    assert listed == {"organizations": [organization], "nextCursor": None}
    base = f"/organizations/{organization['id']}"
    deployment = make(front, owner, f"{base}/deployments", name="Agent")
    form = {
        "grant_type": "client_credentials",
        "client_id": deployment["clientId"],
        "client_secret": deployment["clientSecret"],
    }
    assert front.post("/oauth/token", data=form).status_code == 200


def test_secrets_are_shown_when_they_are_made_and_never_again(
    front: Front, organization_id: UUID, owner: Person
) -> None:
    base = f"/organizations/{organization_id}"
    deployment = make(front, owner, f"{base}/deployments", name="Agent")
    principal = make(front, owner, f"{base}/identities", name="Mailbox")
    distribution = make(
        front,
        owner,
        f"{base}/distributions",
        name="Slack",
        networks=["slack"],
        principalIdentityId=principal["id"],
        deploymentId=deployment["id"],
    )
    second = make(front, owner, f"/deployments/{deployment['id']}/client-credentials")
    key = make(front, owner, "/api-keys", name="Bound", organizationId=str(organization_id))
    rotated = [
        front.post(f"/admin/distributions/{distribution['id']}/rotate-{what}", owner.authorization).get_json()
        for what in ("token", "webhook-secret")
    ]
    secrets = {
        deployment["clientSecret"],
        second["clientSecret"],
        distribution["token"],
        distribution["webhookSecret"],
        key["apiKey"],
        rotated[0]["token"],
        rotated[1]["webhookSecret"],
    }
    assert len(secrets) == 7
    for path in (
        f"{base}/deployments",
        f"/deployments/{deployment['id']}",
        f"/deployments/{deployment['id']}/client-credentials",
        f"/client-credentials/{second['id']}",
        f"{base}/distributions",
        f"/distributions/{distribution['id']}",
        f"{base}/api-keys",
        "/api-keys",
        f"{base}/audit-events",
    ):
        shown = front.get(f"/admin{path}", owner.authorization)
        assert shown.status_code == 200
        assert not [secret for secret in secrets if secret in shown.text]
    last4 = front.get(f"/admin/distributions/{distribution['id']}", owner.authorization).get_json()[
        "tokenLast4"
    ]
    assert rotated[0]["token"].endswith(last4)


def test_a_listing_is_read_page_by_page(front: Front, organization_id: UUID, owner: Person) -> None:
    path = f"/organizations/{organization_id}/identities"
    made = [make(front, owner, path, name=f"Mailbox {number}")["id"] for number in range(5)]
    seen: list[str] = []
    query = "?limit=2"
    while query:
        page = front.get(f"/admin{path}{query}", owner.authorization).get_json()
        assert len(page["identities"]) <= 2
        seen += [identity["id"] for identity in page["identities"]]
        query = f"?limit=2&cursor={page['nextCursor']}" if page["nextCursor"] else ""
    assert seen == made


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("limit=0", (422, "validation_failed")),
        ("limit=101", (422, "validation_failed")),
        ("limit=ten", (422, "validation_failed")),
        ("cursor=last", (400, "malformed_request")),
        ("limit=1&limit=1", (400, "duplicate_parameter")),
        ("offset=1", (400, "unknown_parameter")),
    ],
)
def test_a_wrong_page_is_refused(
    front: Front, organization_id: UUID, owner: Person, query: str, expected: tuple[int, str]
) -> None:
    path = f"/admin/organizations/{organization_id}/members?{query}"
    assert refusal(front.get(path, owner.authorization)) == expected


BODIES: list[tuple[str, dict[str, Any], tuple[int, str]]] = [
    ("invitations", {}, (422, "field_required")),
    ("invitations", {"role": "Member"}, (422, "validation_failed")),
    ("invitations", {"email": "nobody", "role": "Member"}, (422, "validation_failed")),
    ("invitations", {"email": "a@b.example", "role": "ProjectAgent"}, (422, "validation_failed")),
    (
        "invitations",
        {"email": "a@b.example", "role": "Member", "isOperator": True},
        (400, "unknown_parameter"),
    ),
    ("identities", {"name": ""}, (422, "validation_failed")),
    ("identities", {"name": "   "}, (422, "validation_failed")),
    ("identities", {"name": "x" * 201}, (422, "validation_failed")),
    ("identities", {"name": "line\nline"}, (422, "validation_failed")),
    ("identities", {"name": None}, (422, "validation_failed")),
    ("identities", {"name": "x", "kind": "DaemonIdentity"}, (400, "unknown_parameter")),
    ("deployments", {"name": "x", "kind": "Local"}, (422, "validation_failed")),
    ("deployments", {"name": "x", "clientId": str(uuid4())}, (400, "unknown_parameter")),
    ("distributions", {"name": "x", "networks": []}, (422, "field_required")),
    (
        "role-bindings",
        {"role": "Member", "scopeKind": "Identity", "scopeId": "x"},
        (400, "malformed_request"),
    ),
]


@pytest.mark.parametrize(("resource", "body", "expected"), BODIES)
def test_a_wrong_body_is_refused_and_every_wrong_field_named(
    front: Front,
    organization_id: UUID,
    owner: Person,
    resource: str,
    body: dict[str, Any],
    expected: tuple[int, str],
) -> None:
    answer = front.post(f"/admin/organizations/{organization_id}/{resource}", owner.authorization, json=body)
    assert refusal(answer) == expected
    assert all(field["location"] == "body" for field in answer.get_json()["errors"])


@pytest.mark.parametrize(
    ("subject", "scope_kind"),
    [
        ({}, "Identity"),
        ({"subjectIdentityId", "subjectUserId"}, "Identity"),
        ({"subjectUserId"}, "Organization"),
    ],
)
def test_a_binding_has_one_subject_and_a_users_is_over_one_identity(
    front: Front, organization_id: UUID, owner: Person, subject: set[str], scope_kind: str
) -> None:
    body = {"role": "Member", "scopeKind": scope_kind, "scopeId": str(organization_id)}
    body |= dict.fromkeys(subject, str(owner.user_id))
    path = f"/admin/organizations/{organization_id}/role-bindings"
    assert refusal(front.post(path, owner.authorization, json=body)) == (422, "validation_failed")


def test_a_user_can_be_given_a_role_over_one_identity(
    front: Front, organization_id: UUID, owner: Person
) -> None:
    member = front.identity.person(organization_id)
    principal = front.identity.principal(organization_id)
    path = f"/organizations/{organization_id}/role-bindings"
    body = {
        "subjectUserId": str(member.user_id),
        "role": "ProjectAgent",
        "scopeKind": "Identity",
        "scopeId": str(principal.id),
    }
    binding = make(front, owner, path, **body)
    assert refusal(front.post(f"/admin{path}", owner.authorization, json=body)) == (409, "already_exists")
    address = f"/admin/role-bindings/{binding['id']}"
    assert front.delete(address, owner.authorization).status_code == 204
    assert refusal(front.delete(address, owner.authorization)) == (404, "not_found")


def test_an_admin_cannot_make_anyone_more_than_an_admin(
    front: Front, organization_id: UUID, owner: Person, admin: Person
) -> None:
    members = f"/admin/organizations/{organization_id}/members"
    invitations = f"/admin/organizations/{organization_id}/invitations"
    bindings = f"/admin/organizations/{organization_id}/role-bindings"
    deployment = front.identity.deployment(organization_id)
    escalations = [
        front.post(invitations, admin.authorization, json={"email": "x@y.example", "role": "WorkspaceOwner"}),
        front.patch(f"{members}/{admin.user_id}", admin.authorization, json={"role": "WorkspaceOwner"}),
        front.post(
            bindings,
            admin.authorization,
            json={
                "subjectIdentityId": str(deployment.deployment.daemon_identity_id),
                "role": "WorkspaceOwner",
                "scopeKind": "Organization",
                "scopeId": str(organization_id),
            },
        ),
    ]
    assert [refusal(answer) for answer in escalations] == [(403, "grant_exceeds_granter")] * 3
    theirs = {"name": "Theirs", "userId": str(owner.user_id), "organizationId": str(organization_id)}
    refused = front.post("/admin/api-keys", admin.authorization, json=theirs)
    assert refusal(refused) == (403, "permission_denied")
    touching_the_owner = [
        front.patch(f"{members}/{owner.user_id}", admin.authorization, json={"role": "Member"}),
        front.delete(f"{members}/{owner.user_id}", admin.authorization),
    ]
    assert [refusal(answer) for answer in touching_the_owner] == [(403, "permission_denied")] * 2


def test_a_member_cannot_make_themselves_more(front: Front, organization_id: UUID) -> None:
    member = front.identity.person(organization_id)
    path = f"/admin/organizations/{organization_id}/members/{member.user_id}"
    answer = front.patch(path, member.authorization, json={"role": "WorkspaceAdmin"})
    assert refusal(answer) == (403, "permission_denied")


def test_the_last_owner_stays(front: Front) -> None:
    operator = front.identity.operator()
    user = make(front, operator, "/users", email=f"{uuid4().hex}@example.org")
    organization = make(front, operator, "/organizations", name="Acme", ownerId=user["id"])
    path = f"/admin/organizations/{organization['id']}/members/{user['id']}"
    assert refusal(front.delete(path, operator.authorization)) == (409, "last_owner")
    demoted = front.patch(path, operator.authorization, json={"role": "Member"})
    assert refusal(demoted) == (409, "last_owner")


def test_whoever_leaves_is_out_at_once(front: Front, organization_id: UUID, owner: Person) -> None:
    member = front.identity.person(organization_id, bound=True)
    path = f"/admin/organizations/{organization_id}"
    assert front.get(path, member.authorization).status_code == 200
    assert front.delete(f"{path}/members/{member.user_id}", owner.authorization).status_code == 204
    assert refusal(front.get(path, member.authorization)) == (401, "invalid_token")


def test_a_key_acts_in_the_organization_its_user_selects(front: Front, organization_id: UUID) -> None:
    person = front.identity.person(organization_id, Role.WORKSPACE_OWNER)
    operator = front.identity.operator()
    second = make(front, operator, "/organizations", name="Second", ownerId=str(person.user_id))
    files = f"/admin/organizations/{second['id']}/deployments"
    assert refusal(front.get(files, person.authorization)) == (404, "not_found")
    selected = front.put(
        "/admin/me/active-organization", person.authorization, json={"organizationId": second["id"]}
    )
    assert selected.get_json()["activeOrganizationId"] == second["id"]
    assert front.get(files, person.authorization).status_code == 200


def test_a_revoked_key_and_a_disabled_user_are_out_at_once(front: Front, organization_id: UUID) -> None:
    operator = front.identity.operator()
    person = front.identity.person(organization_id)
    disable = front.post(f"/admin/users/{person.user_id}/disable", operator.authorization)
    assert disable.get_json()["disabledAt"]
    assert refusal(front.get("/admin/me", person.authorization)) == (401, "invalid_token")
    front.post(f"/admin/users/{person.user_id}/enable", operator.authorization)
    own = front.get("/admin/api-keys", person.authorization).get_json()["apiKeys"][0]["id"]
    assert front.post(f"/admin/api-keys/{own}/revoke", person.authorization).get_json()["revokedAt"]
    assert refusal(front.get("/admin/me", person.authorization)) == (401, "invalid_token")


def test_a_key_may_end_by_itself_but_not_in_the_past(front: Front, owner: Person) -> None:
    key = make(front, owner, "/api-keys", name="Short", expiresAt="2999-01-01T00:00:00Z")
    assert key["expiresAt"] == "2999-01-01T00:00:00Z"
    past = {"name": "Past", "expiresAt": "2020-01-01T00:00:00Z"}
    assert refusal(front.post("/admin/api-keys", owner.authorization, json=past)) == (
        422,
        "validation_failed",
    )


def test_two_client_secrets_live_at_once_and_no_third(
    front: Front, organization_id: UUID, owner: Person
) -> None:
    deployment = front.identity.deployment(organization_id).deployment
    path = f"/deployments/{deployment.id}/client-credentials"
    second = make(front, owner, path)
    third = front.post(f"/admin{path}", owner.authorization, json={})
    assert refusal(third) == (409, "too_many_live_credentials")
    front.post(f"/admin/client-credentials/{second['id']}/revoke", owner.authorization)
    make(front, owner, path)


def test_a_revoked_version_does_not_come_back(front: Front, organization_id: UUID, owner: Person) -> None:
    created = front.identity.deployment(organization_id)
    first, path = created.version.id, f"/deployments/{created.deployment.id}"
    second = make(front, owner, f"{path}/versions", label="second")
    assert second["number"] == 2
    active = front.get(f"/admin{path}", owner.authorization).get_json()["activeVersionId"]
    assert active == second["id"]
    assert front.post(f"/admin/versions/{first}/activate", owner.authorization).status_code == 200
    front.post(f"/admin/versions/{second['id']}/revoke", owner.authorization)
    again = front.post(f"/admin/versions/{second['id']}/activate", owner.authorization)
    assert refusal(again) == (409, "version_revoked")


def test_what_is_omitted_of_a_distribution_stays(front: Front, organization_id: UUID, owner: Person) -> None:
    principal = front.identity.principal(organization_id)
    made = front.identity.distribution(
        organization_id,
        principal_id=principal.id,
        deployment_id=front.identity.deployment(organization_id).deployment.id,
    )
    path = f"/admin/distributions/{made.distribution.id}"
    before = front.get(path, owner.authorization).get_json()
    changed = front.patch(path, owner.authorization, json={"mediaRetentionDays": 7}).get_json()
    assert changed == before | {"mediaRetentionDays": 7}
    wrong = front.patch(path, owner.authorization, json={"networks": ["Slack!"]})
    assert refusal(wrong) == (422, "validation_failed")


def test_a_suspended_organization_stands_still_until_it_is_resumed(
    front: Front, organization_id: UUID, owner: Person
) -> None:
    operator = front.identity.operator()
    path = f"/admin/organizations/{organization_id}"
    assert front.post(f"{path}/suspend", operator.authorization).get_json()["suspendedAt"]
    assert refusal(front.get(path, owner.authorization)) == (403, "organization_suspended")
    assert front.post(f"{path}/resume", operator.authorization).get_json()["suspendedAt"] is None
    assert front.get(path, owner.authorization).status_code == 200


def test_a_user_turns_from_a_suspended_organization_to_another_with_the_same_key(
    front: Front, organization_id: UUID
) -> None:
    person = front.identity.person(organization_id, Role.WORKSPACE_OWNER)
    bound = front.identity.person(organization_id, bound=True)
    operator = front.identity.operator()
    second = make(front, operator, "/organizations", name="Second", ownerId=str(person.user_id))
    assert (
        front.post(f"/admin/organizations/{organization_id}/suspend", operator.authorization).status_code
        == 200
    )
    assert front.get("/v1/credits", person.authorization).status_code == 403
    assert front.get("/admin/me", person.authorization).get_json()["activeOrganizationId"] == str(
        organization_id
    )
    choice = {"organizationId": second["id"]}
    change = partial(front.put, "/admin/me/active-organization", json=choice)
    assert refusal(change(bound.authorization)) == (403, "organization_suspended")
    assert change(person.authorization).status_code == 200
    assert front.get("/v1/credits", person.authorization).status_code == 200


def test_what_was_done_is_recorded_with_its_doer_and_request(
    front: Front, organization_id: UUID, owner: Person
) -> None:
    front.post(
        f"/admin/organizations/{organization_id}/identities",
        owner.authorization,
        json={"name": "Mailbox"},
        headers={"X-Request-Id": "the-request"},
    )
    page = front.get(f"/admin/organizations/{organization_id}/audit-events?limit=1", owner.authorization)
    (event,) = page.get_json()["auditEvents"]
    assert event["action"] == "identity.created"
    assert (event["actorKind"], event["actorId"]) == ("User", str(owner.user_id))
    assert event["requestId"] == "the-request"


def test_keys_rotate_once_the_next_ones_are_known_and_old_tokens_stay_good(
    front: Front, organization_id: UUID
) -> None:
    operator = front.identity.operator()
    created = front.identity.deployment(organization_id)
    old = front.identity.authorization(created)
    early = front.post("/admin/signing-keys/rotate", operator.authorization)
    assert refusal(early) == (409, "signing_key_not_published")
    with front.services.database.transaction() as session:
        session.execute(update(signing_keys).values(created_at=func.now() - timedelta(hours=1)))
    keys = front.post("/admin/signing-keys/rotate", operator.authorization).get_json()["signingKeys"]
    states = sorted((key["purpose"], key["state"]) for key in keys)
    assert states == [
        (purpose, state) for purpose in ("access", "attribution") for state in ("current", "next", "previous")
    ]
    published = {key["kid"] for key in front.get("/.well-known/jwks.json").get_json()["keys"]}
    assert published == {key["kid"] for key in keys}
    assert front.get("/files", old).status_code == 200
    (spent,) = [key["kid"] for key in keys if (key["purpose"], key["state"]) == ("access", "previous")]
    front.post(f"/admin/signing-keys/{spent}/revoke", operator.authorization)
    assert refusal(front.get("/files", old)) == (401, "invalid_token")


@pytest.mark.parametrize(
    "path", ["organizations/not-an-id", "deployments/{id}x", "users/%7B{id}%7D", "nothing"]
)
def test_an_address_that_cannot_be_is_not_found(front: Front, owner: Person, path: str) -> None:
    answer = front.get(f"/admin/{path.format(id=uuid4())}", owner.authorization)
    assert refusal(answer) == (404, "not_found")
