"""The order of checks (docs/specification/wire.md#order-of-checks), from the route to the body.

Route, credentials, header rules, parameters, principals, file, permission, replay, state, precondition, body: each case
is wrong in two neighbouring ways, and the response must be the earlier one's.
"""

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from shared.identity.access.authorization import OPERATOR
from shared.identity.directory.identities import disable_identity
from tests.support.files.bodies import CONTENT_TYPE
from tests.support.files.file_requests import Asker, expire, leaving_nothing, refuse, run_sql, succeed
from tests.support.web.web_process import Front
from tests.web.files.conftest import ATTRIBUTION, Cast, on_behalf_of

NO_BODY: dict[str, Any] = {"data": b"no form", "content_type": "text/plain"}


@pytest.fixture
def file(cast: Cast) -> Any:
    return succeed(cast.agent.upload(b"first"), 201)


def sending(asker: Asker, **headers: str) -> Asker:
    return replace(asker, headers={**asker.headers, **headers})


def replacing(file: Any, **query: object) -> dict[str, object]:
    expectation = {"expectedVersionId": file["versionId"], "expectedRevision": file["revision"]}
    return {"operationId": uuid4(), "byteSize": 7, **expectation, **query}


def test_the_route_comes_before_credentials(cast: Cast) -> None:
    refuse(cast.anonymous.ask("GET", "/files/not-an-id"), 404, "not_found")
    refuse(cast.anonymous.ask("PATCH", "/files"), 405, "method_not_allowed")


def test_credentials_come_before_the_header_rules(cast: Cast) -> None:
    asker = sending(cast.anonymous, **{"Service-Principal-Selector": "x", ATTRIBUTION: ""})
    refuse(asker.list(), 401, "authentication_required")
    refuse(sending(asker, Authorization="Bearer x").list(), 401, "invalid_token")


def test_the_header_rules_come_before_the_parameters(cast: Cast) -> None:
    refuse(sending(cast.agent, **{ATTRIBUTION: ""}).ask("GET", "/files?x=1"), 400, "attribution_empty")
    selecting = sending(cast.agent, **{"Service-Principal-Selector": "x"})
    refuse(selecting.ask("GET", "/files?x=1"), 400, "principal_selector_not_allowed")


def test_the_parameters_come_before_the_principals(cast: Cast, front: Front) -> None:
    forged = sending(cast.agent, **{ATTRIBUTION: "a.b.c"})
    refuse(forged.ask("GET", "/files?x=1"), 400, "unknown_parameter")
    refuse(forged.ask("GET", "/files?limit=0"), 422, "validation_failed")
    refuse(forged.ask("GET", "/files"), 401, "attribution_invalid")


def test_the_principals_come_before_the_file(cast: Cast, front: Front) -> None:
    foreign = sending(cast.colleague, **{ATTRIBUTION: cast.for_p1.headers[ATTRIBUTION]})
    refuse(foreign.metadata({"id": uuid4()}), 403, "attribution_mismatch")
    principal = front.identity.principal(cast.acme, "gone")
    asker = on_behalf_of(front, cast.agent_deployment, principal.id, payer_id=cast.acme)
    with front.services.database.transaction() as session:
        disable_identity(session, actor=OPERATOR, identity_id=principal.id)
    refuse(asker.metadata({"id": uuid4()}), 401, "attribution_invalid")


def test_the_file_comes_before_the_permission(cast: Cast, file: Any) -> None:
    refuse(cast.colleague.delete(file), 404, "file_not_found")
    refuse(cast.agent.delete(file), 403, "permission_denied")


def test_the_permission_comes_before_the_replay(cast: Cast, file: Any) -> None:
    operation_id = uuid4()
    other = succeed(cast.agent.upload(), 201)
    succeed(cast.admin.delete(other, operationId=operation_id))
    refuse(cast.member.delete(other, operationId=operation_id), 403, "permission_denied")
    refuse(cast.agent.delete(file, operationId=operation_id), 403, "permission_denied")


def test_the_permission_comes_before_the_payer_and_the_body(cast: Cast, front: Front) -> None:
    query = {"operationId": uuid4(), "byteSize": 2**60, "organizationId": uuid4()}
    with leaving_nothing(front):
        refuse(
            cast.agent_for_p3.ask("POST", "/files/agent-artifacts", query, **NO_BODY),
            403,
            "permission_denied",
        )
        refuse(cast.owner.ask("POST", "/files/agent-artifacts", query, **NO_BODY), 403, "owner_required")
        refuse(cast.agent.ask("POST", "/files/agent-artifacts", query, **NO_BODY), 403, "payer_mismatch")


def test_the_replay_comes_before_the_state(cast: Cast, front: Front, file: Any) -> None:
    replace_id, delete_id = uuid4(), uuid4()
    succeed(cast.agent.replace(file, operationId=replace_id))
    succeed(cast.admin.delete(file, operationId=delete_id))
    assert succeed(cast.agent.replace(file, operationId=replace_id))["replayed"] is True
    assert succeed(cast.admin.delete(file, operationId=delete_id))["replayed"] is True
    refuse(cast.agent.replace(file, b"other", operationId=replace_id), 409, "operation_conflict")
    refuse(cast.agent.replace(file), 410, "file_deleted")


def test_the_state_comes_before_the_precondition(cast: Cast, front: Front, file: Any) -> None:
    media = succeed(cast.agent.upload(), 201)
    run_sql(front, "UPDATE files SET purpose = 'MessagingMedia' WHERE id = :id", id=media["id"])
    expire(front, file)
    for query in ({"expectedRevision": None}, {"expectedRevision": 7}):
        path = f"/files/{file['id']}"
        refuse(cast.agent.ask("PUT", path, replacing(file, **query), **NO_BODY), 410, "file_expired")
        path = f"/files/{media['id']}"
        refuse(
            cast.agent.ask("PUT", path, replacing(media, **query), **NO_BODY), 409, "replace_not_supported"
        )


def test_the_precondition_comes_before_the_body(cast: Cast, front: Front, file: Any) -> None:
    path = f"/files/{file['id']}"
    with leaving_nothing(front):
        missing = replacing(file, expectedRevision=None, byteSize=2**60)
        refuse(cast.agent.ask("PUT", path, missing, **NO_BODY), 428, "precondition_required")
        wrong = replacing(file, expectedRevision=2, byteSize=2**60)
        refuse(cast.agent.ask("PUT", path, wrong, **NO_BODY), 412, "version_mismatch")
        refuse(cast.agent.ask("PUT", path, replacing(file), **NO_BODY), 415, "unsupported_media_type")


def test_an_announced_size_is_judged_before_the_body_is_read(cast: Cast, front: Front) -> None:
    query = {"operationId": uuid4(), "byteSize": 2**60}
    answer = cast.agent.ask(
        "POST", "/files/agent-artifacts", query, data=b"no form", content_type=CONTENT_TYPE
    )
    refuse(answer, 413, "content_too_large")


def test_the_deadline_of_an_upload_is_judged_before_its_body(cast: Cast, front: Front) -> None:
    query = {"operationId": uuid4(), "byteSize": 7, "retentionExpiresAt": "2001-01-01T00:00:00Z"}
    with leaving_nothing(front):
        answer = cast.agent.ask("POST", "/files/agent-artifacts", query, **NO_BODY)
        refuse(answer, 422, "validation_failed")


def test_a_renewal_looks_at_its_body_last(cast: Cast, front: Front, file: Any) -> None:
    def renew(asker: Asker, at: Any) -> Any:
        return asker.ask("PUT", f"/files/{at['id']}/retention", **NO_BODY)

    media = succeed(cast.agent.upload(), 201)
    run_sql(front, "UPDATE files SET purpose = 'MessagingMedia' WHERE id = :id", id=media["id"])
    refuse(renew(cast.colleague, file), 404, "file_not_found")
    refuse(renew(cast.member, file), 403, "permission_denied")
    refuse(renew(cast.agent, media), 409, "retention_renewal_not_supported")
    refuse(renew(cast.agent, file), 415, "unsupported_media_type")
    expire(front, file)
    refuse(renew(cast.agent, file), 410, "file_expired")


def test_an_unread_body_closes_the_connection(cast: Cast, file: Any) -> None:
    refused = cast.colleague.replace(file)
    refuse(refused, 404, "file_not_found")
    assert refused.headers["Connection"] == "close"
    assert "Connection" not in cast.agent.replace(file).headers
