"""Invitations over HTTP: from the owner's request to the new member's first call."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from shared.identity.access.roles import Role
from tests.support.data.identity import Person
from tests.support.web.web_process import Front


def invite(front: Front, owner: Person, organization_id: UUID, **body: str) -> Any:
    path = f"/admin/organizations/{organization_id}/invitations"
    answer = front.post(path, owner.authorization, json={"role": "Member", **body})
    assert answer.status_code == 201, answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    return answer.get_json()


def member_ids(front: Front, owner: Person, organization_id: UUID) -> list[str]:
    page = front.get(f"/admin/organizations/{organization_id}/members", owner.authorization).get_json()
    return [member["userId"] for member in page["members"]]


def test_an_owner_cannot_take_a_user_of_another_organization_in(
    front: Front, organization_id: UUID, owner: Person
) -> None:
    other = front.identity.organization().id
    victim = front.identity.person(other, Role.WORKSPACE_OWNER)
    members = f"/admin/organizations/{organization_id}/members"
    taken = front.post(members, owner.authorization, json={"email": victim.email, "role": "Member"})
    assert (taken.status_code, taken.get_json()["code"]) == (403, "permission_denied")
    invitation = invite(front, owner, organization_id, email=victim.email)
    # The owner holds the token, and still cannot accept in the victim's place or make a key of theirs.
    held = {"token": invitation["token"]}
    of_the_victim = {"userId": str(victim.user_id), "organizationId": str(organization_id)}
    for attempt, refused in (
        (front.post("/admin/invitations/accept", owner.authorization, json=held), (404, "not_found")),
        (front.post("/invitations/register", json=held), (409, "already_exists")),
        (
            front.post("/admin/api-keys", owner.authorization, json={"name": "x", **of_the_victim}),
            (403, "permission_denied"),
        ),
    ):
        assert (attempt.status_code, attempt.get_json()["code"]) == refused
        assert "svk_" not in attempt.text
    assert str(victim.user_id) not in member_ids(front, owner, organization_id)
    accepted = front.post(
        "/admin/invitations/accept", victim.authorization, json={"token": invitation["token"]}
    )
    assert (accepted.status_code, accepted.get_json()["role"]) == (200, "Member")
    assert str(victim.user_id) in member_ids(front, owner, organization_id)
    me = front.get("/admin/me", victim.authorization).get_json()
    # A second membership moves no key: only a first organization becomes the active one.
    assert me["activeOrganizationId"] == str(other)


def test_a_newcomer_registers_and_works_with_the_key_of_the_answer(
    front: Front, organization_id: UUID, owner: Person
) -> None:
    email = f"{uuid4().hex}@example.org"
    token = invite(front, owner, organization_id, email=email)["token"]
    made = front.post("/invitations/register", json={"token": token})
    assert made.status_code == 201
    assert made.headers["Cache-Control"] == "no-store"
    assert made.get_json()["member"]["email"] == email
    key = f"Bearer {made.get_json()['apiKey']}"
    me = front.get("/admin/me", key).get_json()
    assert (me["email"], me["isOperator"]) == (email, False)
    assert me["activeOrganizationId"] == str(organization_id)
    again = front.post("/invitations/register", json={"token": token})
    assert (again.status_code, again.get_json()["code"]) == (410, "invitation_ended")


def test_a_token_is_shown_once_and_a_revoked_one_opens_nothing(
    front: Front, organization_id: UUID, owner: Person
) -> None:
    invitation = invite(front, owner, organization_id, email=f"{uuid4().hex}@example.org")
    token = invitation.pop("token")
    path = f"/admin/invitations/{invitation['id']}"
    assert front.get(path, owner.authorization).get_json() == invitation
    listed = front.get(f"/admin/organizations/{organization_id}/invitations", owner.authorization)
    assert listed.get_json()["invitations"] == [invitation]
    assert front.post(f"{path}/revoke", owner.authorization).get_json()["revokedAt"]
    refused = front.post("/invitations/register", json={"token": token})
    assert (refused.status_code, refused.get_json()["code"]) == (410, "invitation_ended")
    events = front.get(f"/admin/organizations/{organization_id}/audit-events", owner.authorization).get_json()
    assert [event["action"] for event in events["auditEvents"]][:2] == [
        "invitation.revoked",
        "invitation.created",
    ]
    # The audit names the invitation, and never the token.
    assert token not in str(events)


@pytest.mark.parametrize("token", ["svi_guessed", "svk_" + "0" * 49, "x"])
def test_a_guessed_token_is_like_one_that_never_was(front: Front, token: str) -> None:
    refused = front.post("/invitations/register", json={"token": token})
    assert (refused.status_code, refused.get_json()["code"]) == (404, "not_found")


def test_a_user_with_several_organizations_and_none_selected_is_asked_to_select(front: Front) -> None:
    organizations = [front.identity.organization().id for _ in range(3)]
    person = front.identity.person(organizations[0])
    operator = front.identity.operator().authorization
    for organization_id in organizations[1:]:
        body = {"email": person.email, "role": "WorkspaceOwner"}
        path = f"/admin/organizations/{organization_id}/members"
        assert front.post(path, operator, json=body).status_code == 201
    path = f"/admin/organizations/{organizations[0]}/members/{person.user_id}"
    assert front.delete(path, operator).status_code == 204
    refused = front.get("/v1/credits", person.authorization)
    assert (refused.status_code, refused.get_json()["error"]["code"]) == (
        400,
        "billing_organization_required",
    )
    body = {"organizationId": str(organizations[2])}
    assert front.put("/admin/me/active-organization", person.authorization, json=body).status_code == 200
    assert front.get("/v1/credits", person.authorization).status_code == 200


ANYWHERE = [
    "/files",
    f"/files/{UUID(int=1)}",
    "/v1/credits",
    "/v1/models",
    "/v1/usage",
    "/tasks",
]


@pytest.mark.parametrize("path", ANYWHERE)
@pytest.mark.parametrize("who", ["owner", "operator"])
def test_a_suspended_organization_says_so_everywhere_to_its_operator_too(
    front: Front, path: str, who: str
) -> None:
    organization_id = front.identity.organization().id
    owner = front.identity.person(organization_id, Role.WORKSPACE_OWNER)
    operator = front.identity.operator()
    members = f"/admin/organizations/{organization_id}/members"
    body = {"email": operator.email, "role": "WorkspaceOwner"}
    assert front.post(members, operator.authorization, json=body).status_code == 201
    suspend = f"/admin/organizations/{organization_id}/suspend"
    assert front.post(suspend, operator.authorization).status_code == 200
    asker = owner if who == "owner" else operator
    refused = front.get(path, asker.authorization)
    assert refused.status_code == 403
    assert "suspended" in refused.text.lower()
    resume = f"/admin/organizations/{organization_id}/resume"
    assert front.post(resume, operator.authorization).status_code == 200
