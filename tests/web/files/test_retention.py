"""`PUT /files/{id}/retention` and the effect of a deadline (docs/specification/files.md#retention)."""

from typing import Any

import pytest

from tests.support.web.web_process import Front
from tests.web.files.asking import Asker, expire, fields_of, leaving_nothing, refuse, run_sql, succeed
from tests.web.files.conftest import Cast

DEADLINE, LATER, EARLIER = "2090-01-01T00:00:00Z", "2090-01-01T00:00:00.000001Z", "2089-12-31T23:59:59Z"


@pytest.fixture
def file(cast: Cast) -> Any:
    return succeed(cast.agent.upload(retentionExpiresAt=DEADLINE), 201)


def deadline_of(asker: Asker, file: Any) -> Any:
    return succeed(asker.metadata(file))["metadata"]["retentionExpiresAt"]


def test_a_renewal_moves_the_deadline_and_nothing_else(cast: Cast, file: Any) -> None:
    link = succeed(cast.agent.grant(file), 201)["url"]
    before = succeed(cast.agent.metadata(file))
    renewed = succeed(cast.agent.renew(file, LATER))
    assert renewed["metadata"].pop("retentionExpiresAt") == LATER
    before["metadata"].pop("retentionExpiresAt")
    assert renewed == before
    assert deadline_of(cast.agent, file) == LATER
    assert cast.anonymous.follow(link).data == b"content"


def test_the_same_deadline_again_is_a_renewal(cast: Cast, file: Any) -> None:
    assert succeed(cast.agent.renew(file, DEADLINE))["metadata"]["retentionExpiresAt"] == DEADLINE


def test_null_makes_retention_indefinite_and_stays_so(cast: Cast, file: Any) -> None:
    for _ in range(2):
        assert succeed(cast.agent.renew(file, None))["metadata"]["retentionExpiresAt"] is None
    refuse(cast.agent.renew(file, LATER), 409, "retention_is_indefinite")
    assert deadline_of(cast.agent, file) is None


def test_a_renewal_never_shortens_the_deadline(cast: Cast, file: Any) -> None:
    refuse(cast.agent.renew(file, EARLIER), 409, "retention_shortened")
    refuse(cast.agent.renew(file, "2001-01-01T00:00:00Z"), 409, "retention_shortened")
    assert deadline_of(cast.agent, file) == DEADLINE


def test_leaving_the_field_out_is_not_null(cast: Cast, file: Any) -> None:
    problem = refuse(cast.agent.ask("PUT", f"/files/{file['id']}/retention", json={}), 422, "field_required")
    assert fields_of(problem) == {("body", "retentionExpiresAt")}
    assert deadline_of(cast.agent, file) == DEADLINE


def test_ended_file_cannot_be_renewed(cast: Cast, front: Front, file: Any) -> None:
    deleted = succeed(cast.agent.upload(), 201)
    succeed(cast.admin.delete(deleted))
    expire(front, file)
    for deadline in (None, LATER):
        refuse(cast.agent.renew(file, deadline), 410, "file_expired")
        refuse(cast.agent.renew(deleted, deadline), 410, "file_deleted")
    assert succeed(cast.agent.metadata(file))["availability"] == "Expired"


def test_messaging_media_stays_temporary(cast: Cast, front: Front, file: Any) -> None:
    run_sql(front, "UPDATE files SET purpose = 'MessagingMedia' WHERE id = :id", id=file["id"])
    refuse(cast.agent.renew(file, None), 409, "retention_renewal_not_supported")
    metadata = succeed(cast.agent.metadata(file))
    assert metadata["purpose"] == "MessagingMedia"
    assert metadata["retentionRenewalSupported"] is False
    assert metadata["canRenewRetention"] is False


def test_content_ends_at_its_deadline_without_any_sweep(cast: Cast, front: Front, file: Any) -> None:
    link = succeed(cast.agent.grant(file), 201)["url"]
    assert cast.agent.content(file).status_code == 200
    expire(front, file)
    refuse(cast.agent.content(file), 410, "file_expired")
    refuse(cast.agent.content(file, versionId=file["versionId"]), 410, "file_expired")
    refuse(cast.anonymous.follow(link), 410, "grant_expired")
    refuse(cast.agent.grant(file), 410, "file_expired")
    refuse(cast.agent.refer(file), 410, "file_expired")
    refuse(cast.admin.delete(file), 410, "file_expired")
    assert succeed(cast.agent.metadata(file))["availability"] == "Expired"
    assert succeed(cast.agent.versions(file))["versions"][0]["versionId"] == file["versionId"]


def test_reading_sharing_and_listing_change_no_deadline(cast: Cast, file: Any) -> None:
    cast.agent.metadata(file)
    cast.agent.content(file)
    cast.agent.grant(file)
    cast.agent.list()
    cast.agent.refer(file, "Conversation", "c-1")
    cast.agent.release(file, "Conversation", "c-1")
    assert deadline_of(cast.agent, file) == DEADLINE


WRONG_TIMES = [
    "2090-01-01T00:00:00.1234567Z",
    "2090-01-01T00:00:00",
    "2090-01-01T00:00:00+02:00",
    "2090-01-01T00:00:00-00:00",
    "2090-01-01",
    "2090-01-01 00:00:00Z",
    "2090-01-01t00:00:00z",
    "2090-13-01T00:00:00Z",
    "2090-02-30T00:00:00Z",
    "2090-01-01T00:00:00.Z",
    "20900101T000000Z",
    "3786912000",
    "",
    "never",
    "\u0662\u0660\u0669\u0660-01-01T00:00:00Z",
]


@pytest.mark.parametrize("wrong", WRONG_TIMES)
def test_a_time_has_one_spelling(cast: Cast, front: Front, file: Any, wrong: str) -> None:
    with leaving_nothing(front):
        problem = refuse(cast.agent.renew(file, wrong), 422, "validation_failed")
        assert fields_of(problem) == {("body", "retentionExpiresAt")}
        problem = refuse(cast.agent.upload(retentionExpiresAt=wrong), 422, "validation_failed")
        assert fields_of(problem) == {("query", "retentionExpiresAt")}
    assert deadline_of(cast.agent, file) == DEADLINE


@pytest.mark.parametrize("wrong", [0, 3786912000, 1.5, True, [], {}, [DEADLINE]])
def test_a_time_is_a_string(cast: Cast, file: Any, wrong: object) -> None:
    answer = cast.agent.ask("PUT", f"/files/{file['id']}/retention", json={"retentionExpiresAt": wrong})
    refuse(answer, 422, "validation_failed")
    assert deadline_of(cast.agent, file) == DEADLINE
