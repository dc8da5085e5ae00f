"""Read grants: bearer access to one exact version for a limited time (docs/specification/files.md#grants)."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID, uuid4

import pytest

from shared.identity.access.authorization import OPERATOR
from shared.identity.directory.organizations import resume_organization, suspend_organization
from shared.identity.secrets import Prefix, is_well_formed, issue
from tests.support.files.file_requests import (
    Asker,
    expire,
    fields_of,
    leaving_nothing,
    refuse,
    run_sql,
    succeed,
)
from tests.support.web.web_process import Front, open_front
from tests.web.files.conftest import Cast


@pytest.fixture
def file(cast: Cast) -> Any:
    return succeed(cast.agent.upload(b"first", file_name="shared.txt"), 201)


def token_of(grant: Any) -> str:
    return parse_qs(urlsplit(str(grant["url"])).query)["grant"][0]


def at(instant: str) -> datetime:
    return datetime.fromisoformat(instant)


def test_a_grant_has_the_documented_form(cast: Cast, file: Any) -> None:
    answer = cast.agent.grant(file)
    grant = succeed(answer, 201)
    assert set(grant) == {"id", "grantId", "versionId", "url", "accessExpiresAt", "retentionExpiresAt"}
    assert (grant["id"], grant["versionId"]) == (file["id"], file["versionId"])
    assert grant["retentionExpiresAt"] is None
    assert grant["url"].startswith(f"{file['url']}?grant=svg_")
    assert is_well_formed(token_of(grant), Prefix.GRANT)
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(("asked", "seconds"), [(None, 3600), (60, 60), (120, 120), (86_400, 86_400)])
def test_a_grant_lives_as_long_as_asked(cast: Cast, file: Any, asked: int | None, seconds: int) -> None:
    before = datetime.now(UTC)
    grant = succeed(cast.agent.grant(file, ttlSeconds=asked), 201)
    life = at(grant["accessExpiresAt"]) - before
    assert timedelta(seconds=seconds - 5) < life < timedelta(seconds=seconds + 30)


@pytest.mark.parametrize(
    "ttl",
    ["0", "59", "61", "90", "86401", "86460", "-60", "+60", "060", "6_0", " 60", "60.0", "6e1", "", "null"],
)
def test_any_other_life_is_refused(cast: Cast, front: Front, file: Any, ttl: str) -> None:
    with leaving_nothing(front):
        problem = refuse(cast.agent.grant(file, ttlSeconds=ttl), 422, "validation_failed")
    assert fields_of(problem) == {("query", "ttlSeconds")}


def test_a_grant_takes_no_body(cast: Cast, front: Front, file: Any) -> None:
    path = f"/files/{file['id']}/versions/{file['versionId']}/grants"
    with leaving_nothing(front):
        refuse(cast.agent.ask("POST", path, json={"ttlSeconds": 60}), 400, "malformed_request")
    succeed(cast.agent.ask("POST", path, data=b"", content_type="application/json"), 201)


def test_a_link_opens_its_version_to_anybody(cast: Cast, file: Any) -> None:
    link = succeed(cast.agent.grant(file), 201)["url"]
    answer = cast.anonymous.follow(link)
    assert (answer.status_code, answer.data) == (200, b"first")
    assert answer.headers["Cache-Control"] == "private, no-store"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Disposition"].startswith("attachment; filename")


def test_a_link_keeps_to_its_version_when_the_file_is_replaced(cast: Cast, file: Any) -> None:
    first = succeed(cast.agent.grant(file), 201)
    second_version = succeed(cast.agent.replace(file, b"second"))
    second = succeed(cast.agent.grant(second_version), 201)
    earlier = succeed(cast.agent.grant(file), 201)
    assert earlier["versionId"] == file["versionId"]
    contents = [cast.anonymous.follow(grant["url"]).data for grant in (first, second, earlier)]
    assert contents == [b"first", b"second", b"first"]


def test_a_links_life_ends_with_retention_if_that_is_sooner(cast: Cast, front: Front) -> None:
    deadline = datetime.now(UTC) + timedelta(minutes=10)
    written = deadline.replace(tzinfo=None).isoformat() + "Z"
    file = succeed(cast.agent.upload(retentionExpiresAt=written), 201)
    grant = succeed(cast.agent.grant(file), 201)
    assert at(grant["accessExpiresAt"]) == at(grant["retentionExpiresAt"]) == deadline
    shorter = succeed(cast.agent.grant(file, ttlSeconds=60), 201)
    assert at(shorter["accessExpiresAt"]) < deadline
    expire(front, file)
    for each in (grant, shorter):
        refuse(cast.anonymous.follow(each["url"]), 410, "grant_expired")


def test_a_renewal_does_not_lengthen_a_link(cast: Cast, front: Front) -> None:
    written = (datetime.now(UTC) + timedelta(minutes=10)).replace(tzinfo=None).isoformat() + "Z"
    file = succeed(cast.agent.upload(retentionExpiresAt=written), 201)
    link = succeed(cast.agent.grant(file), 201)["url"]
    succeed(cast.agent.renew(file, None))
    assert cast.anonymous.follow(link).status_code == 200
    rows = run_sql(
        front,
        "SELECT DISTINCT g.access_expires_at = CAST(:at AS timestamptz) AS kept FROM read_grants g WHERE file_id = :id",
        at=written,
        id=file["id"],
    )
    assert [row.kept for row in rows] == [True]


def test_expired_link_is_refused_and_a_new_one_works(cast: Cast, front: Front, file: Any) -> None:
    link = succeed(cast.agent.grant(file), 201)["url"]
    run_sql(
        front,
        "UPDATE read_grants SET access_expires_at = clock_timestamp() - interval '1 ms' WHERE file_id = :id",
        id=file["id"],
    )
    refuse(cast.anonymous.follow(link), 410, "grant_expired")
    again = succeed(cast.agent.grant(file), 201)
    assert again["versionId"] == file["versionId"]
    assert cast.anonymous.follow(again["url"]).data == b"first"


def test_a_revoked_link_does_not_work(cast: Cast, front: Front, file: Any) -> None:
    link = succeed(cast.agent.grant(file), 201)["url"]
    run_sql(front, "UPDATE read_grants SET revoked_at = now() WHERE file_id = :id", id=file["id"])
    refuse(cast.anonymous.follow(link), 410, "grant_expired")


def test_link_of_a_suspended_organization_is_refused_until_it_resumes(
    cast: Cast, front: Front, file: Any
) -> None:
    link, ended = (succeed(cast.agent.grant(file), 201) for _ in range(2))
    run_sql(front, "UPDATE read_grants SET access_expires_at = now() WHERE id = :id", id=ended["grantId"])
    organization_id = UUID(file_organization(front, file))
    with front.services.database.transaction() as session:
        suspend_organization(session, actor=OPERATOR, organization_id=organization_id)
    suspended = cast.anonymous.follow(link["url"])
    refuse(suspended, 403, "organization_suspended")
    assert suspended.headers["Access-Control-Allow-Origin"] == "*"
    refuse(cast.anonymous.follow(ended["url"]), 410, "grant_expired")
    with front.services.database.transaction() as session:
        resume_organization(session, actor=OPERATOR, organization_id=organization_id)
    assert cast.anonymous.follow(link["url"]).data == b"first"


def file_organization(front: Front, file: Any) -> str:
    (row,) = run_sql(front, "SELECT organization_id FROM files WHERE id = :id", id=file["id"])
    return str(row.organization_id)


def test_wrong_links_have_one_response(cast: Cast, file: Any) -> None:
    other = succeed(cast.for_p1.upload(), 201)
    token = token_of(succeed(cast.agent.grant(file), 201))
    damaged = token[:-1] + ("0" if token[-1] != "0" else "1")
    wrong = [
        f"/files/{file['id']}/content?grant={issue(Prefix.GRANT).value}",
        f"/files/{other['id']}/content?grant={token}",
        f"/files/{uuid4()}/content?grant={token}",
        f"/files/{file['id']}/content?grant={damaged}",
        f"/files/{file['id']}/content?grant={issue(Prefix.API_KEY).value}",
        f"/files/{file['id']}/content?grant=",
        f"/files/{file['id']}/content?grant=%00%ff",
        f"/files/{file['id']}/content?grant={'x' * 5000}",
    ]
    answers = [cast.anonymous.follow(path) for path in wrong]
    bodies = [{**refuse(answer, 404, "grant_not_found"), "requestId": ""} for answer in answers]
    assert all(body == bodies[0] for body in bodies)


def test_a_grant_decides_even_beside_credentials(cast: Cast, file: Any) -> None:
    link = urlsplit(succeed(cast.agent.grant(file), 201)["url"])
    succeed(cast.agent.replace(file, b"second"))
    answer = cast.foreign_agent.ask("GET", f"{link.path}?{link.query}")
    assert answer.data == b"first"
    refuse(cast.agent.ask("GET", f"{link.path}?grant=svg_wrong"), 404, "grant_not_found")


def test_a_grant_names_its_version_itself(cast: Cast, file: Any) -> None:
    link = succeed(cast.agent.grant(file), 201)["url"]
    assert cast.anonymous.follow(f"{link}&versionId={file['versionId']}").data == b"first"
    second = succeed(cast.agent.replace(file, b"second"))
    refuse(cast.anonymous.follow(f"{link}&versionId={second['versionId']}"), 404, "grant_not_found")
    problem = refuse(cast.anonymous.follow(f"{link}&grant=x"), 400, "duplicate_parameter")
    assert fields_of(problem) == {("query", "grant")}
    refuse(cast.anonymous.follow(f"{link}&x=1"), 400, "unknown_parameter")


def test_a_grant_opens_content_and_nothing_else(cast: Cast, front: Front, file: Any) -> None:
    token = token_of(succeed(cast.agent.grant(file), 201))
    path = f"/files/{file['id']}"
    for method, at_path in [("GET", path), ("GET", f"{path}/versions"), ("GET", "/files"), ("DELETE", path)]:
        refuse(cast.anonymous.ask(method, f"{at_path}?grant={token}"), 401, "authentication_required")
    refuse(
        cast.anonymous.ask("GET", path, headers={"Authorization": f"Bearer {token}"}), 401, "invalid_token"
    )


def test_a_grant_is_no_parameter_of_any_other_operation(cast: Cast, front: Front, file: Any) -> None:
    path = f"/files/{file['id']}"
    with leaving_nothing(front):
        for method, at_path in [
            ("GET", path),
            ("GET", "/files"),
            ("GET", f"{path}/versions"),
            ("PUT", f"{path}/references/Task/t"),
            ("POST", f"{path}/versions/{file['versionId']}/grants"),
        ]:
            problem = refuse(
                cast.agent.ask(method, f"{at_path}?grant=svg_anything"), 400, "unknown_parameter"
            )
            assert fields_of(problem) == {("query", "grant")}


def test_a_grant_for_a_version_the_file_does_not_have_is_refused(cast: Cast, front: Front, file: Any) -> None:
    other = succeed(cast.agent.upload(), 201)
    with leaving_nothing(front):
        refuse(cast.agent.grant({**file, "versionId": uuid4()}), 404, "version_not_found")
        refuse(cast.agent.grant({**file, "versionId": other["versionId"]}), 404, "version_not_found")


def test_strangers_may_head_and_resume_a_shared_download(cast: Cast, file: Any) -> None:
    link = succeed(cast.agent.grant(file), 201)["url"]
    head = cast.anonymous.follow(link, method="HEAD")
    assert (head.status_code, head.data, head.headers["Content-Length"]) == (200, b"", "5")
    part = cast.anonymous.follow(link, headers={"Range": "bytes=2-"})
    assert (part.status_code, part.data) == (206, b"rst")
    known = cast.anonymous.follow(link, headers={"If-None-Match": head.headers["ETag"]})
    assert (known.status_code, known.data) == (304, b"")


def test_the_links_of_a_file_are_listed_without_their_secrets(cast: Cast, file: Any) -> None:
    first = succeed(cast.agent.grant(file), 201)
    newer = succeed(cast.agent.replace(file, b"second"))
    second = succeed(cast.owner.grant(newer), 201)
    page = succeed(cast.agent.grants(file))
    assert page["nextCursor"] is None
    assert [grant["grantId"] for grant in page["grants"]] == [second["grantId"], first["grantId"]]
    assert [grant["versionId"] for grant in page["grants"]] == [newer["versionId"], file["versionId"]]
    oldest = page["grants"][-1]
    assert (oldest["fileId"], oldest["createdBy"]) == (file["id"], str(cast.agent.owner_id))
    assert (oldest["accessExpiresAt"], oldest["revokedAt"]) == (first["accessExpiresAt"], None)
    assert token_of(first) not in str(page)


def test_the_links_of_a_file_are_listed_page_by_page(cast: Cast, file: Any) -> None:
    made = [succeed(cast.agent.grant(file), 201)["grantId"] for _ in range(3)]
    first = succeed(cast.agent.grants(file, limit=2))
    # A link made meanwhile moves nothing on the pages that follow.
    succeed(cast.agent.grant(file), 201)
    second = succeed(cast.agent.grants(file, limit=2, cursor=first["nextCursor"]))
    assert [grant["grantId"] for grant in first["grants"] + second["grants"]] == made[::-1]
    assert second["nextCursor"] is None


def test_revoked_link_is_refused_in_every_process_and_others_work(
    cast: Cast, front: Front, file: Any
) -> None:
    revoked, kept = (succeed(cast.agent.grant(file), 201) for _ in range(2))
    assert cast.anonymous.follow(revoked["url"]).status_code == 200
    with open_front(
        front.settings.database_url, front.settings.redis_url, Path(urlsplit(front.settings.blob_store).path)
    ) as other:
        elsewhere = Asker(front=other, headers={})
        assert elsewhere.follow(revoked["url"]).status_code == 200
        answer = succeed(cast.agent.revoke(file, revoked["grantId"]))
        for client in (cast.anonymous, elsewhere):
            refuse(client.follow(revoked["url"]), 410, "grant_expired")
            assert client.follow(kept["url"]).status_code == 200
    assert (answer["grantId"], at(answer["revokedAt"]) <= datetime.now(UTC)) == (revoked["grantId"], True)
    assert succeed(cast.agent.revoke(file, revoked["grantId"])) == answer
    _, event = run_sql(
        front,
        "SELECT action, actor_id, organization_id FROM audit_events WHERE resource_id = :id ORDER BY id",
        id=revoked["grantId"],
    )
    assert event == ("read_grant.revoked", cast.agent.owner_id, cast.acme)


def test_only_a_link_of_the_file_itself_is_revoked_by_its_address(cast: Cast, file: Any) -> None:
    other = succeed(cast.agent.upload(), 201)
    grant = succeed(cast.agent.grant(other), 201)
    refuse(cast.agent.revoke(file, grant["grantId"]), 404, "grant_not_found")
    refuse(cast.agent.revoke(file, uuid4()), 404, "grant_not_found")
    assert cast.anonymous.follow(grant["url"]).status_code == 200
    refuse(cast.foreign_agent.revoke(other, grant["grantId"]), 404, "file_not_found")
    refuse(cast.globex_owner.grants(other), 404, "file_not_found")
    refuse(cast.member.revoke(other, grant["grantId"]), 403, "permission_denied")
