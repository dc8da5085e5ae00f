"""`DELETE /files/{id}`, and references, which prevent it (docs/specification/files.md#delete)."""

from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

from shared.files.lifecycle.garbage_collection import collect_garbage
from tests.support.files.file_requests import leaving_nothing, refuse, stored_names, succeed
from tests.support.web.web_process import Front
from tests.web.files.conftest import Cast, agent_of, promote


@pytest.fixture
def file(cast: Cast) -> Any:
    return succeed(cast.agent.upload(b"first"), 201)


def test_a_delete_answers_when_the_file_ended(cast: Cast, file: Any) -> None:
    deleted = succeed(cast.admin.delete(file))
    assert set(deleted) == {"id", "availability", "deletedAt", "replayed"}
    assert (deleted["id"], deleted["availability"], deleted["replayed"]) == (file["id"], "Deleted", False)
    assert deleted["deletedAt"].endswith("Z")


def test_deleted_file_keeps_its_metadata(cast: Cast, file: Any) -> None:
    before = succeed(cast.agent.metadata(file))
    succeed(cast.admin.delete(file))
    assert succeed(cast.agent.metadata(file)) == {**before, "availability": "Deleted"}
    assert succeed(cast.agent.versions(file))["versions"][0]["versionId"] == file["versionId"]
    assert succeed(cast.agent.references(file)) == {"references": []}
    refuse(cast.foreign_agent.metadata(file), 404, "file_not_found")


def test_everything_else_of_a_deleted_file_is_gone_at_once(cast: Cast, file: Any) -> None:
    link = succeed(cast.agent.grant(file), 201)["url"]
    succeed(cast.admin.delete(file))
    refuse(cast.anonymous.follow(link), 410, "grant_expired")
    refuse(cast.agent.content(file), 410, "file_deleted")
    refuse(cast.agent.content(file, versionId=file["versionId"]), 410, "file_deleted")
    refuse(cast.agent.grant(file), 410, "file_deleted")
    refuse(cast.agent.renew(file, None), 410, "file_deleted")
    refuse(cast.agent.replace(file), 410, "file_deleted")
    refuse(cast.agent.refer(file), 410, "file_deleted")
    refuse(cast.admin.delete(file), 410, "file_deleted")


def test_the_bytes_of_every_version_go(cast: Cast, front: Front, file: Any) -> None:
    second = succeed(cast.agent.replace(file))
    mine = {file["versionId"], second["versionId"]}
    assert mine <= stored_names(front)
    succeed(cast.admin.delete(file))
    collect_garbage(front.services.database, front.services.blobs)
    assert not mine & stored_names(front)


def test_a_referenced_file_is_not_deleted_until_it_is_released(cast: Cast, front: Front, file: Any) -> None:
    succeed(cast.agent.refer(file, "Task", "t-1"), 201)
    succeed(cast.agent.refer(file, "Message", "m/2"), 201)
    with leaving_nothing(front):
        problem = refuse(cast.admin.delete(file), 409, "file_referenced")
    assert problem["references"] == [
        {"kind": "Task", "referenceId": "t-1"},
        {"kind": "Message", "referenceId": "m/2"},
    ]
    assert cast.agent.release(file, "Task", "t-1").status_code == 204
    refuse(cast.admin.delete(file), 409, "file_referenced")
    assert cast.agent.release(file, "Message", "m/2").status_code == 204
    succeed(cast.admin.delete(file))


def test_the_association_of_an_upload_stands_against_its_deletion(cast: Cast) -> None:
    file = succeed(cast.agent.upload(associationKind="Task", associationId="t-9"), 201)
    refuse(cast.admin.delete(file), 409, "file_referenced")


def test_a_reference_is_made_once_and_listed_in_order(cast: Cast, file: Any) -> None:
    first = succeed(cast.agent.refer(file, "Task", "b"), 201)
    assert set(first) == {"kind", "referenceId", "createdAt"}
    assert succeed(cast.agent.refer(file, "Task", "b"), 200) == first
    second = succeed(cast.agent.refer(file, "Schedule", "a"), 201)
    assert succeed(cast.agent.references(file)) == {"references": [first, second]}


def test_a_released_reference_is_gone_and_an_unknown_one_was_never_there(cast: Cast, file: Any) -> None:
    succeed(cast.agent.refer(file), 201)
    answer = cast.agent.release(file)
    assert (answer.status_code, answer.data, answer.headers.get("Content-Type")) == (204, b"", None)
    refuse(cast.agent.release(file), 404, "reference_not_found")
    refuse(cast.agent.release(file, "Message", "t-1"), 404, "reference_not_found")


def test_a_reference_of_a_file_that_is_gone_may_be_released(cast: Cast, file: Any) -> None:
    succeed(cast.admin.delete(file))
    refuse(cast.agent.release(file), 404, "reference_not_found")


@pytest.mark.parametrize("reference_id", ["x", "y" * 200, "a/b/c", "é ü", "..", "%", "a?b"])
def test_any_text_of_200_characters_names_a_referring_resource(
    cast: Cast, file: Any, reference_id: str
) -> None:
    assert succeed(cast.agent.refer(file, "Task", reference_id), 201)["referenceId"] == reference_id
    assert cast.agent.release(file, "Task", reference_id).status_code == 204


@pytest.mark.parametrize("reference_id", ["", "y" * 201, "a\x00b", "a\nb", "a\x85b"])
def test_invalid_reference_id_is_not_found(cast: Cast, front: Front, file: Any, reference_id: str) -> None:
    with leaving_nothing(front):
        refuse(cast.agent.refer(file, "Task", reference_id), 404, "not_found")


@pytest.mark.parametrize("kind", ["task", "Run", "Tasks", quote("Täsk")])
def test_an_unknown_kind_of_reference_is_no_address(cast: Cast, front: Front, file: Any, kind: str) -> None:
    with leaving_nothing(front):
        refuse(cast.agent.refer(file, kind), 404, "not_found")


def test_an_agent_with_the_permission_deletes_its_own_and_no_other(cast: Cast, front: Front) -> None:
    created, _ = cast.newcomer()
    promote(front, created)
    trusted = agent_of(front, created)
    succeed(trusted.delete(succeed(trusted.upload(), 201)))
    refuse(trusted.delete(succeed(cast.agent.upload(), 201)), 404, "file_not_found")


def test_a_delete_of_nothing_is_not_found(cast: Cast, front: Front) -> None:
    with leaving_nothing(front):
        refuse(cast.admin.delete({"id": uuid4()}), 404, "file_not_found")
