"""Retention deadlines: the rules that every path asks, and renewal."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from werkzeug.test import TestResponse

from shared.errors import ValidationFailed
from shared.files import retention
from shared.files.errors import RetentionRenewalNotSupported
from shared.files.imports import NewMedia, write_media
from shared.files.resources import File, Purpose, ReceivedContent
from shared.files.retention import RetentionPolicy
from tests.support.files.file_requests import (
    Asker,
    expire,
    fields_of,
    leaving_nothing,
    refuse,
    run_sql,
    succeed,
)
from tests.support.web.web_process import Front
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


MAX_DAYS = 2
CONTENT = b"content"


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Limit every purpose to two days from the call on."""

    def apply() -> None:
        for purpose in Purpose:
            policy = RetentionPolicy(is_renewable=True, max_days=MAX_DAYS)
            monkeypatch.setitem(retention.POLICIES, purpose, policy)

    return apply


def in_days(days: float) -> str:
    return f"{(datetime.now(UTC) + timedelta(days=days)).replace(tzinfo=None).isoformat()}Z"


def refuse_deadline(answer: TestResponse, location: str) -> None:
    assert fields_of(refuse(answer, 422, "validation_failed")) == {(location, "retentionExpiresAt")}


@pytest.mark.parametrize("deadline", [None, in_days(MAX_DAYS + 1)], ids=["indefinite", "too late"])
def test_upload_with_deadline_beyond_limit_is_refused(
    cast: Cast, limit: Callable[[], None], deadline: str | None
) -> None:
    limit()
    refuse_deadline(cast.agent.upload(retentionExpiresAt=deadline), "query")
    succeed(cast.agent.upload(retentionExpiresAt=in_days(MAX_DAYS - 1)), 201)


def test_resumable_upload_beyond_limit_is_refused_at_beginning_and_at_completion(
    cast: Cast, limit: Callable[[], None]
) -> None:
    begun = cast.agent.begin(len(CONTENT))
    limit()
    refuse_deadline(cast.agent.begin(len(CONTENT)), "query")
    refuse_deadline(cast.agent.append(begun, 0, CONTENT, is_last=True), "query")


def test_renewal_with_deadline_beyond_limit_is_refused(cast: Cast, limit: Callable[[], None]) -> None:
    file = succeed(cast.agent.upload(retentionExpiresAt=in_days(1)), 201)
    limit()
    for deadline in (None, in_days(MAX_DAYS + 1)):
        refuse_deadline(cast.agent.renew(file, deadline), "body")
    succeed(cast.agent.renew(file, in_days(MAX_DAYS - 0.5)))


def test_import_with_retention_beyond_limit_is_refused(limit: Callable[[], None]) -> None:
    limit()
    nothing: Any = None  # refused before the session or the staged content is used
    content = ReceivedContent(file_name="a", media_type="image/png", byte_size=1, sha256=bytes(32))
    media = NewMedia(
        file_id=uuid4(),
        organization_id=uuid4(),
        owner_id=uuid4(),
        distribution_id=uuid4(),
        retention_days=MAX_DAYS + 1,
    )
    with pytest.raises(ValidationFailed):
        write_media(nothing, nothing, media, content)


def test_renewal_condition_applies_to_route_and_metadata(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    file = succeed(cast.agent.upload(retentionExpiresAt=in_days(1)), 201)
    assert succeed(cast.agent.metadata(file))["canRenewRetention"] is True

    def refuse_all(_: File) -> RetentionRenewalNotSupported:
        return RetentionRenewalNotSupported()

    monkeypatch.setattr(retention, "_find_renewal_refusal", refuse_all)
    assert succeed(cast.agent.metadata(file))["canRenewRetention"] is False
    refuse(cast.agent.renew(file, None), 409, "retention_renewal_not_supported")
