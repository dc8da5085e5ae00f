"""Each limit of retention is decided once, in `shared/files/retention.py`: every write of a deadline obeys it."""

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
from tests.web.files.asking import fields_of, refuse, succeed
from tests.web.files.conftest import Cast

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


@pytest.mark.parametrize("deadline", [None, in_days(MAX_DAYS + 1)])
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
