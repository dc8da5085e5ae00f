"""`PUT /files/{id}`: a new version of the same file, if the client names its current one.

Specified in docs/specification/files.md#replace.
"""

from typing import Any
from uuid import uuid4

import pytest

from tests.support.files.file_requests import expire, leaving_nothing, refuse, run_sql, succeed
from tests.support.web.web_process import Front
from tests.web.files.conftest import Cast


@pytest.fixture
def file(cast: Cast) -> Any:
    return succeed(cast.agent.upload(b"first", retentionExpiresAt="2090-01-01T00:00:00Z"), 201)


def test_a_replace_makes_the_next_version_of_the_same_file(cast: Cast, file: Any) -> None:
    replaced = succeed(
        cast.agent.replace(file, b"second", file_name="other.bin", media_type="application/x-other")
    )
    assert set(replaced) == set(file)
    assert replaced["id"] == file["id"]
    assert replaced["versionId"] != file["versionId"]
    assert (replaced["revision"], replaced["replayed"]) == (2, False)
    assert replaced["metadata"]["fileName"] == "other.bin"
    assert replaced["metadata"]["mediaType"] == "application/x-other"
    assert replaced["metadata"]["byteSize"] == 6
    metadata = succeed(cast.agent.metadata(file))
    assert (metadata["versionId"], metadata["revision"]) == (replaced["versionId"], 2)
    assert metadata["metadata"] == replaced["metadata"]
    assert cast.agent.content(file).data == b"second"


def test_owner_and_retention_stay_as_they_were(cast: Cast, file: Any) -> None:
    before = succeed(cast.agent.metadata(file))
    succeed(cast.admin.replace(file))
    after = succeed(cast.agent.metadata(file))
    assert after["owner"] == before["owner"]
    assert after["organizationId"] == before["organizationId"]
    assert after["metadata"]["retentionExpiresAt"] == "2090-01-01T00:00:00Z"


def test_versions_are_listed_page_by_page(cast: Cast, file: Any) -> None:
    for _ in range(2):
        file = succeed(cast.agent.replace(file))
    other = succeed(cast.agent.upload(), 201)
    first = succeed(cast.agent.versions(file, limit=2))
    assert [at["revision"] for at in first["versions"]] == [3, 2]
    assert first["nextCursor"] == first["versions"][1]["versionId"]
    last = succeed(cast.agent.versions(file, limit=2, cursor=first["nextCursor"]))
    assert ([at["revision"] for at in last["versions"]], last["nextCursor"]) == ([1], None)
    assert succeed(cast.agent.versions(other, cursor=first["nextCursor"]))["versions"] == []
    refuse(cast.agent.versions(file, limit=1001), 422, "validation_failed")


def test_earlier_versions_stay_listed_and_readable(cast: Cast, file: Any) -> None:
    second = succeed(cast.agent.replace(file, b"second"))
    third = succeed(cast.agent.replace(second, b"third"))
    listed = succeed(cast.agent.versions(file))["versions"]
    assert [(at["revision"], at["versionId"]) for at in listed] == [
        (3, third["versionId"]),
        (2, second["versionId"]),
        (1, file["versionId"]),
    ]
    assert listed[2]["metadata"] == file["metadata"]
    contents = [cast.agent.content(file, versionId=at["versionId"]).data for at in listed]
    assert contents == [b"third", b"second", b"first"]


@pytest.mark.parametrize(
    "expectation", [{"expectedVersionId": uuid4()}, {"expectedRevision": 2}, {"expectedRevision": 0}]
)
def test_both_expectations_must_match(
    cast: Cast, front: Front, file: Any, expectation: dict[str, Any]
) -> None:
    with leaving_nothing(front):
        problem = refuse(cast.agent.replace(file, **expectation), 412, "version_mismatch")
    assert (problem["versionId"], problem["revision"]) == (file["versionId"], 1)


def test_a_replace_that_expects_an_earlier_version_is_refused(cast: Cast, front: Front, file: Any) -> None:
    succeed(cast.agent.replace(file, b"second"))
    with leaving_nothing(front):
        refuse(cast.agent.replace(file, b"also second"), 412, "version_mismatch")
    assert cast.agent.content(file).data == b"second"


@pytest.mark.parametrize("missing", ["expectedVersionId", "expectedRevision"])
def test_a_replace_without_both_expectations_is_refused(
    cast: Cast, front: Front, file: Any, missing: str
) -> None:
    unsaid: dict[str, Any] = {missing: None}
    with leaving_nothing(front):
        refuse(cast.agent.replace(file, **unsaid), 428, "precondition_required")


def test_messaging_media_cannot_be_replaced(cast: Cast, front: Front, file: Any) -> None:
    run_sql(front, "UPDATE files SET purpose = 'MessagingMedia' WHERE id = :id", id=file["id"])
    with leaving_nothing(front):
        refuse(cast.agent.replace(file), 409, "replace_not_supported")


def test_content_that_is_gone_is_not_replaced(cast: Cast, front: Front, file: Any) -> None:
    deleted = succeed(cast.agent.upload(), 201)
    succeed(cast.admin.delete(deleted))
    expire(front, file)
    with leaving_nothing(front):
        refuse(cast.agent.replace(file), 410, "file_expired")
        refuse(cast.agent.replace(deleted), 410, "file_deleted")


def test_a_wrong_size_leaves_the_current_version(cast: Cast, front: Front, file: Any) -> None:
    with leaving_nothing(front):
        refuse(cast.agent.replace(file, b"123", byteSize=4), 422, "byte_size_mismatch")
        refuse(cast.agent.replace(file, b"123", byteSize=2**63 - 1), 413, "content_too_large")
    assert succeed(cast.agent.metadata(file))["revision"] == 1
