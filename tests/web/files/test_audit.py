"""Actions that remove something from a file, or cannot be undone, are audit events with their actor."""

from typing import Any
from uuid import uuid4

import pytest

from tests.support.files.file_requests import Asker, refuse, succeed
from tests.web.files.conftest import Cast

LATER, LATEST = "2100-01-01T00:00:00Z", "2100-06-01T00:00:00Z"


@pytest.fixture
def file(cast: Cast) -> Any:
    return succeed(cast.agent.upload(b"first"), 201)


def events(cast: Cast, file: Any) -> list[dict[str, Any]]:
    """Return the audit events of a file, newest first."""
    page = succeed(
        cast.front.get(f"/admin/organizations/{cast.acme}/audit-events?limit=100", authorization(cast.admin))
    )
    return [
        event
        for event in page["auditEvents"]
        if file["id"] in (event["resourceId"], event["details"].get("fileId"))
    ]


def authorization(asker: Asker) -> str:
    return asker.headers["Authorization"]


def test_actor_of_a_deletion_is_recorded_once(cast: Cast, file: Any) -> None:
    refuse(cast.agent.delete(file), 403, "permission_denied")
    operation = str(uuid4())
    for _ in range(2):
        path = f"/files/{file['id']}?operationId={operation}"
        headers = {"X-Request-Id": "the-deletion"}
        succeed(cast.front.delete(path, authorization(cast.admin), headers=headers))
    (event,) = events(cast, file)
    me = succeed(cast.front.get("/admin/me", authorization(cast.admin)))
    assert (event["action"], event["actorKind"], event["actorId"]) == ("file.deleted", "User", me["id"])
    assert (event["requestId"], event["resourceKind"]) == ("the-deletion", "file")
    assert event["details"] == {"ownerId": str(cast.agent.owner_id)}


def test_actor_of_a_renewal_is_recorded(cast: Cast) -> None:
    file = succeed(cast.agent.upload(b"first", retentionExpiresAt=LATER), 201)
    for deadline in (LATER, LATEST, LATEST, None):
        succeed(cast.agent.renew(file, deadline))
    last, first = events(cast, file)
    assert first["action"] == last["action"] == "file.retention_renewed"
    assert (first["actorKind"], first["actorId"]) == ("DaemonIdentity", str(cast.agent.owner_id))
    assert [first["details"]["retentionExpiresAt"][:10], last["details"]["retentionExpiresAt"]] == [
        LATEST[:10],
        None,
    ]
    assert first["details"]["insteadOf"][:10] == LATER[:10]


def test_actor_of_a_reference_removal_is_recorded(cast: Cast, file: Any) -> None:
    path = f"/files/{file['id']}/references/Task/t-1"
    succeed(cast.front.put(path, authorization(cast.agent)), 201)
    assert cast.front.delete(path, authorization(cast.agent)).status_code == 204
    refuse(cast.front.delete(path, authorization(cast.agent)), 404, "reference_not_found")
    (event,) = events(cast, file)
    assert event["action"] == "file.reference_removed"
    assert event["details"] == {"kind": "Task", "referenceId": "t-1"}


def test_actor_of_a_replace_is_recorded_once(cast: Cast, file: Any) -> None:
    operation = uuid4()
    replaced = succeed(cast.agent.replace(file, b"second", operationId=operation))
    assert succeed(cast.agent.replace(file, b"second", operationId=operation))["replayed"] is True
    refuse(cast.agent.replace(file, b"third"), 412, "version_mismatch")
    (event,) = events(cast, file)
    assert (event["action"], event["actorId"]) == ("file.content_replaced", str(cast.agent.owner_id))
    assert event["details"] == {"versionId": replaced["versionId"], "insteadOf": file["versionId"]}


def test_actor_of_a_grant_is_recorded_without_the_link(cast: Cast, file: Any) -> None:
    refuse(cast.member.grant(file), 403, "permission_denied")
    grant = succeed(cast.agent.grant(file, ttlSeconds=120), 201)
    (event,) = events(cast, file)
    assert (event["action"], event["resourceKind"]) == ("read_grant.created", "read_grant")
    assert (event["resourceId"], event["actorId"]) == (grant["grantId"], str(cast.agent.owner_id))
    assert event["details"] == {"fileId": file["id"], "versionId": file["versionId"], "ttlSeconds": "120"}
    assert grant["url"].partition("grant=")[2] not in str(event)
