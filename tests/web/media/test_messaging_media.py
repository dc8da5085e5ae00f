"""Messaging media is received and kept for a time; the file routes cannot create, replace or renew it.

Its owner reads, shares and, with the right role, deletes it, whichever distribution received it.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from shared.identity.access.roles import Role
from tests.support.data.media_samples import OGG, PNG
from tests.support.files.file_requests import Asker, expire, refuse, succeed
from tests.support.web.web_process import Front
from tests.web.files.conftest import agent_of, on_behalf_of, promote
from tests.web.media.conftest import Connector, make_connector


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Two distributions that deliver to one identity, and those around it."""

    first: Connector
    second: Connector
    agent_for_owner: Asker
    second_agent_for_owner: Asker
    agent: Asker
    agent_for_another: Asker
    owner: Asker
    admin: Asker
    member: Asker
    foreign_owner: Asker

    def receive(self, connector: Connector | None = None) -> dict[str, Any]:
        """Import media; return it as the file routes show it."""
        pushed = (connector or self.first).push_form(OGG).json or {}
        return {"id": pushed["fileId"], "versionId": pushed["versionId"], "revision": 1}


@pytest.fixture(scope="module")
def scene(front: Front) -> Scene:
    first = make_connector(front)
    second = make_connector(front, first.organization_id, first.principal_id)
    payer = first.organization_id
    another = front.identity.principal(payer, "another").id
    elsewhere = front.identity.organization("Globex").id

    def person(organization_id: Any, role: Role) -> Asker:
        authorization = front.identity.person(organization_id, role).authorization
        return Asker(front=front, headers={"Authorization": authorization})

    return Scene(
        first=first,
        second=second,
        agent_for_owner=on_behalf_of(front, first.deployment, first.principal_id, payer_id=payer),
        second_agent_for_owner=on_behalf_of(front, second.deployment, first.principal_id, payer_id=payer),
        agent=agent_of(front, first.deployment),
        agent_for_another=on_behalf_of(front, first.deployment, another, payer_id=payer),
        owner=person(payer, Role.WORKSPACE_OWNER),
        admin=person(payer, Role.WORKSPACE_ADMIN),
        member=person(payer, Role.MEMBER),
        foreign_owner=person(elsewhere, Role.WORKSPACE_OWNER),
    )


def test_it_is_a_file_of_its_purpose_owner_and_deadline(scene: Scene) -> None:
    file = scene.receive()
    shown = succeed(scene.agent_for_owner.metadata(file))
    assert shown["purpose"] == "MessagingMedia"
    assert shown["owner"] == {"kind": "PrincipalIdentity", "id": str(scene.first.principal_id)}
    assert shown["organizationId"] == str(scene.first.organization_id)
    assert (shown["revision"], shown["versionId"]) == (1, file["versionId"])
    assert shown["metadata"]["fileName"] == OGG.file_name
    deadline = datetime.fromisoformat(shown["metadata"]["retentionExpiresAt"])
    assert timedelta(days=29) < deadline - datetime.now(UTC) <= timedelta(days=30)


def test_nobody_can_renew_it_and_it_says_so(scene: Scene) -> None:
    file = scene.receive()
    for asker in (scene.agent_for_owner, scene.owner, scene.admin):
        shown = succeed(asker.metadata(file))
        assert (shown["retentionRenewalSupported"], shown["canRenewRetention"]) == (False, False)
        for deadline in ("2100-01-01T00:00:00Z", None):
            refuse(asker.renew(file, deadline), 409, "retention_renewal_not_supported")


def test_what_can_be_renewed_says_so_to_whoever_can(scene: Scene) -> None:
    uploaded = succeed(scene.agent_for_owner.upload(retentionExpiresAt="2100-01-01T00:00:00Z"), 201)
    for asker, may in ((scene.agent_for_owner, True), (scene.owner, True)):
        shown = succeed(asker.metadata(uploaded))
        assert (shown["retentionRenewalSupported"], shown["canRenewRetention"]) == (True, may)


def test_nobody_can_replace_it(scene: Scene) -> None:
    file = scene.receive()
    for asker in (scene.agent_for_owner, scene.owner):
        refuse(asker.replace(file), 409, "replace_not_supported")
    assert scene.agent_for_owner.content(file).data == OGG.content


def test_no_upload_makes_it(scene: Scene) -> None:
    for name in ("purpose", "ownerId", "owner", "visibility", "placement"):
        refuse(
            scene.agent_for_owner.upload(**{name: "MessagingMedia"}),  # type: ignore[arg-type]
            400,
            "unknown_parameter",
        )
    made = succeed(scene.agent_for_owner.upload(), 201)
    assert made["purpose"] == "AgentArtifact"
    refuse(scene.agent_for_owner.ask("POST", "/files/messaging-media"), 404, "not_found")


def test_its_owner_reaches_it_through_every_distribution(scene: Scene) -> None:
    files = [scene.receive(scene.first), scene.receive(scene.second)]
    for asker in (scene.agent_for_owner, scene.second_agent_for_owner):
        listed = succeed(asker.list(purpose="MessagingMedia", limit=100))["files"]
        assert {file["id"] for file in files} <= {one["id"] for one in listed}
        for file in files:
            answer = asker.content(file)
            assert (answer.data, answer.mimetype) == (OGG.content, OGG.media_type)
            assert answer.headers["Content-Disposition"].startswith("attachment")


def test_it_is_shared_like_any_file(scene: Scene) -> None:
    file = scene.receive()
    for asker in (scene.agent_for_owner, scene.owner, scene.admin):
        link = succeed(asker.grant(file), 201)["url"]
        assert scene.agent.follow(link).data == OGG.content


def test_a_member_reads_it_and_does_nothing_else(scene: Scene) -> None:
    file = scene.receive()
    assert scene.member.content(file).data == OGG.content
    assert succeed(scene.member.metadata(file))["canRenewRetention"] is False
    for answer in (scene.member.grant(file), scene.member.delete(file), scene.member.renew(file, None)):
        refuse(answer, 403, "permission_denied")


def test_strangers_do_not_know_of_it(scene: Scene) -> None:
    file = scene.receive()
    for asker in (scene.agent, scene.agent_for_another, scene.foreign_owner):
        for answer in (asker.metadata(file), asker.content(file), asker.grant(file), asker.delete(file)):
            refuse(answer, 404, "file_not_found")


def test_those_who_may_delete_files_may_delete_it(front: Front, scene: Scene) -> None:
    file = scene.receive()
    refuse(scene.agent_for_owner.delete(file), 403, "permission_denied")
    assert succeed(scene.admin.delete(file))["availability"] == "Deleted"
    refuse(scene.agent_for_owner.content(file), 410, "file_deleted")
    promoted = make_connector(front, scene.first.organization_id, scene.first.principal_id)
    promote(front, promoted.deployment)
    payer = scene.first.organization_id
    agent = on_behalf_of(front, promoted.deployment, scene.first.principal_id, payer_id=payer)
    assert succeed(agent.delete(scene.receive(promoted)))["availability"] == "Deleted"


def test_it_expires_and_a_repeated_push_does_not_bring_it_back(front: Front, scene: Scene) -> None:
    message = uuid4().hex
    pushed = scene.first.push_form(PNG, messageId=message).json or {}
    file = {"id": pushed["fileId"], "versionId": pushed["versionId"]}
    expire(front, file)
    refuse(scene.agent_for_owner.content(file), 410, "file_expired")
    assert succeed(scene.agent_for_owner.metadata(file))["availability"] == "Expired"
    again = scene.first.push_form(PNG, messageId=message).json or {}
    assert (again["fileId"], again["replayed"]) == (pushed["fileId"], True)
    refuse(scene.agent_for_owner.content(file), 410, "file_expired")
