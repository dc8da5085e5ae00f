"""Resumable uploads (docs/specification/files.md#resumable): content of several requests becomes one file."""

import base64
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from werkzeug.test import TestResponse

from deploy.embedded.valkey import EmbeddedValkey
from shared.files.blobs.base import StorageFull
from shared.files.blobs.staging import LocalReceiver
from shared.files.lifecycle import garbage_collection
from shared.files.lifecycle.garbage_collection import collect_garbage
from shared.files.resumable import uploads
from shared.files.resumable.expiry import expire_uploads, purge_uploads
from shared.observability.telemetry import UPLOADED_BYTES
from tests.support.files.file_requests import Asker, leaving_nothing, path_of, refuse, run_sql, succeed
from tests.support.web.web_process import Front, open_front
from tests.web.files.conftest import ATTRIBUTION, Cast, demote, on_behalf_of

CONTENT = os.urandom(1_000_000)


def offset_of(answer: TestResponse) -> tuple[str, str]:
    return answer.headers["Upload-Offset"], answer.headers["Upload-Complete"]


def digest_header(content: bytes) -> dict[str, str]:
    return {"Repr-Digest": f"sha-256=:{base64.b64encode(hashlib.sha256(content).digest()).decode()}:"}


def begun(asker: Asker, byte_size: int = len(CONTENT), **more: Any) -> TestResponse:
    answer = asker.begin(byte_size, **more)
    assert answer.status_code == 201, answer.text
    assert offset_of(answer) == ("0", "?0")
    return answer


def test_content_in_pieces_becomes_one_file(cast: Cast) -> None:
    upload = begun(cast.agent, file_name="größe.csv", media_type="text/csv", headers=digest_header(CONTENT))
    assert upload.data == b""
    first = cast.agent.append(upload, 0, CONTENT[:400_000])
    assert (first.status_code, offset_of(first)) == (204, ("400000", "?0"))
    asked = cast.agent.progress(upload)
    assert (asked.status_code, offset_of(asked)) == (204, ("400000", "?0"))
    assert asked.headers["Upload-Length"] == "1000000"
    assert asked.headers["Cache-Control"] == "no-store"
    assert asked.headers["Upload-Limit"].startswith(f"max-size={5 << 30}, max-age=86")
    last = cast.agent.append(upload, 400_000, CONTENT[400_000:], is_last=True)
    file = succeed(last, 201)
    assert offset_of(last) == ("1000000", "?1")
    assert (file["replayed"], file["revision"]) == (False, 1)
    assert file["metadata"]["fileName"] == "größe.csv"
    assert file["metadata"]["mediaType"] == "text/csv"
    assert file["metadata"]["contentSha256"] == hashlib.sha256(CONTENT).hexdigest()
    assert cast.agent.content(file).data == CONTENT


def test_content_of_many_pieces_is_stored_whole(cast: Cast) -> None:
    content = os.urandom(17 << 20)
    upload = begun(cast.agent, len(content))
    file = succeed(cast.agent.append(upload, 0, content, is_last=True), 201)
    assert hashlib.sha256(cast.agent.content(file).data).digest() == hashlib.sha256(content).digest()


def test_content_is_counted_once_however_many_pieces_it_came_in(cast: Cast) -> None:
    before = UPLOADED_BYTES._value.get()
    upload = begun(cast.agent)
    cast.agent.append(upload, 0, CONTENT[:10])
    succeed(cast.agent.append(upload, 10, CONTENT[10:], is_last=True), 201)
    assert UPLOADED_BYTES._value.get() - before == len(CONTENT)


def test_an_empty_file_is_uploaded_in_pieces(cast: Cast) -> None:
    file = succeed(cast.agent.append(begun(cast.agent, 0), 0, b"", is_last=True), 201)
    assert cast.agent.content(file).data == b""


def test_a_file_is_replaced_in_pieces(cast: Cast) -> None:
    file = succeed(cast.agent.upload(b"before"), 201)
    upload = begun(cast.agent, replacing=file)
    assert cast.agent.append(upload, 0, CONTENT[:10]).status_code == 204
    newer = succeed(cast.agent.append(upload, 10, CONTENT[10:], is_last=True))
    assert (newer["id"], newer["revision"]) == (file["id"], 2)
    assert cast.agent.content(newer).data == CONTENT


def test_a_replace_in_pieces_that_was_overtaken_answers_so_at_its_end(cast: Cast) -> None:
    file = succeed(cast.agent.upload(b"before"), 201)
    upload = begun(cast.agent, replacing=file)
    succeed(cast.agent.replace(file))
    refuse(cast.agent.append(upload, 0, CONTENT, is_last=True), 412, "version_mismatch")


def test_a_lost_answer_costs_nothing(cast: Cast) -> None:
    operation = uuid4()
    first = begun(cast.agent, operationId=operation)
    cast.agent.append(first, 0, CONTENT[:100])
    again = cast.agent.begin(len(CONTENT), operationId=operation)
    assert (again.status_code, again.headers["Location"]) == (201, first.headers["Location"])
    assert offset_of(again) == ("100", "?0")
    file = succeed(cast.agent.append(again, 100, CONTENT[100:], is_last=True), 201)
    repeated = cast.agent.append(again, 100, CONTENT[100:], is_last=True)
    assert succeed(repeated) == {**file, "replayed": True}
    begun_again = cast.agent.begin(len(CONTENT), operationId=operation)
    assert succeed(begun_again) == {**file, "replayed": True}
    assert offset_of(begun_again) == offset_of(cast.agent.progress(first)) == ("1000000", "?1")
    # One operation, however it comes:
    assert succeed(cast.agent.upload(CONTENT, operationId=operation)) == {**file, "replayed": True}


def test_an_operation_begun_for_other_content_is_refused(cast: Cast) -> None:
    operation = uuid4()
    begun(cast.agent, operationId=operation)
    for other in (
        cast.agent.begin(7, operationId=operation),
        cast.agent.begin(len(CONTENT), operationId=operation, file_name="other.txt"),
        cast.agent.begin(len(CONTENT), operationId=operation, headers=digest_header(b"other")),
    ):
        refuse(other, 409, "operation_conflict")


def test_a_stored_operation_is_refused_to_other_content(cast: Cast) -> None:
    operation = uuid4()
    succeed(cast.agent.upload(CONTENT, operationId=operation), 201)
    refuse(cast.agent.begin(len(CONTENT), operationId=operation, file_name="x"), 409, "operation_conflict")
    other = digest_header(b"other")
    refuse(cast.agent.begin(len(CONTENT), operationId=operation, headers=other), 409, "operation_conflict")


def test_content_for_another_offset_is_refused_with_the_right_one(cast: Cast) -> None:
    upload = begun(cast.agent)
    cast.agent.append(upload, 0, CONTENT[:100])
    for offset in (0, 99, 101):
        answer = cast.agent.append(upload, offset, CONTENT[100:])
        problem = refuse(answer, 409, "mismatching_upload_offset")
        assert (problem["expectedOffset"], problem["providedOffset"]) == (100, offset)
        assert offset_of(answer) == ("100", "?0")


def test_more_content_than_announced_is_refused_and_the_kept_stays(cast: Cast) -> None:
    upload = begun(cast.agent, 10)
    refuse(cast.agent.append(upload, 0, b"x" * 11), 400, "inconsistent_upload_length")
    short = cast.agent.append(upload, 0, b"x" * 9, is_last=True)
    refuse(short, 400, "inconsistent_upload_length")
    assert offset_of(short) == ("9", "?0")
    succeed(cast.agent.append(upload, 9, b"x", is_last=True), 201)


@pytest.mark.parametrize("headers", [{"Upload-Length": "5"}, {"Upload-Length": "1000001"}])
def test_a_length_that_differs_from_byte_size_is_refused(cast: Cast, headers: dict[str, str]) -> None:
    refuse(cast.agent.begin(len(CONTENT), headers=headers), 400, "inconsistent_upload_length")
    upload = begun(cast.agent, headers={"Upload-Length": "1000000"})
    refuse(cast.agent.append(upload, 0, b"x", headers=headers), 400, "inconsistent_upload_length")


def test_upload_with_another_digest_is_cancelled(cast: Cast) -> None:
    operation = uuid4()
    with leaving_nothing_kept(cast.front):
        upload = begun(cast.agent, operationId=operation, headers=digest_header(b"other"))
        refuse(cast.agent.append(upload, 0, CONTENT, is_last=True), 422, "digest_mismatch")
        refuse(cast.agent.append(upload, 0, CONTENT, is_last=True), 410, "upload_ended")
    assert path_of(begun(cast.agent, operationId=operation)) != path_of(upload)


def test_a_cancelled_upload_leaves_nothing(cast: Cast) -> None:
    with leaving_nothing_kept(cast.front):
        upload = begun(cast.agent)
        cast.agent.append(upload, 0, CONTENT[:500_000])
        cast.agent.append(upload, 500_000, CONTENT[500_000:])
        assert cast.agent.cancel(upload).status_code == 204
        refuse(cast.agent.cancel(upload), 410, "upload_ended")
        assert cast.agent.progress(upload).status_code == 410


def test_a_finished_upload_leaves_its_file_alone(cast: Cast) -> None:
    upload = begun(cast.agent)
    file = succeed(cast.agent.append(upload, 0, CONTENT, is_last=True), 201)
    cast.agent.cancel(upload)
    collect(cast.front)
    kept = run_sql(cast.front, "SELECT FROM upload_pieces WHERE upload_id = :id", id=id_of(upload))
    assert not kept
    assert cast.agent.content(file).data == CONTENT


def test_an_upload_ends_at_its_time_and_is_forgotten_a_day_later(cast: Cast) -> None:
    operation = uuid4()
    with leaving_nothing_kept(cast.front):
        upload = begun(cast.agent, operationId=operation)
        cast.agent.append(upload, 0, CONTENT[:10])
        pass_time(cast.front, upload, "expires_at")
        refuse(cast.agent.append(upload, 10, CONTENT[10:], is_last=True), 410, "upload_ended")
        expire_uploads(cast.front.services.database)
    assert cast.agent.progress(upload).status_code == 410
    pass_time(cast.front, upload, "ended_at")
    purge_uploads(cast.front.services.database)
    assert cast.agent.progress(upload).status_code == 404
    assert begun(cast.agent, operationId=operation).headers["Location"] != upload.headers["Location"]


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_upload_of_many_pieces_ends_immediately_and_is_collected_in_batches(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, *, is_cancelled: bool
) -> None:
    monkeypatch.setattr(uploads, "AT_ONCE", 2)
    monkeypatch.setattr(garbage_collection, "BATCH_SIZE", 2)
    with leaving_nothing_kept(cast.front):
        upload = begun(cast.agent)
        for offset in range(5):
            succeed(cast.agent.append(upload, offset, b"x"), 204)
        if is_cancelled:
            succeed(cast.agent.cancel(upload), 204)
        else:
            pass_time(cast.front, upload, "expires_at")
            expire_uploads(cast.front.services.database)
        assert cast.agent.progress(upload).status_code == 410
        assert count_pieces(cast.front, upload) == 3
        pass_time(cast.front, upload, "ended_at")
        purge_uploads(cast.front.services.database)
        assert cast.agent.progress(upload).status_code == 410
    assert count_pieces(cast.front, upload) == 0
    purge_uploads(cast.front.services.database)
    assert cast.agent.progress(upload).status_code == 404


def test_an_expired_upload_is_begun_anew_before_any_sweep(cast: Cast) -> None:
    operation = uuid4()
    upload = begun(cast.agent, operationId=operation)
    cast.agent.append(upload, 0, CONTENT[:10])
    pass_time(cast.front, upload, "expires_at")
    assert begun(cast.agent, operationId=operation).headers["Location"] != upload.headers["Location"]


def test_content_keeps_an_upload_for_another_day(cast: Cast) -> None:
    upload = begun(cast.agent)
    run_sql(
        cast.front,
        "UPDATE resumable_uploads SET expires_at = now() + interval '1 minute' WHERE id = :id",
        id=id_of(upload),
    )
    answer = cast.agent.append(upload, 0, CONTENT[:10])
    assert answer.headers["Upload-Limit"].endswith("max-age=86400")


def test_an_upload_is_its_executors_alone(cast: Cast) -> None:
    upload = begun(cast.agent)
    for foreign_agent in (cast.colleague, cast.foreign_agent, cast.owner, cast.for_p1):
        assert foreign_agent.progress(upload).status_code == 404
        refuse(foreign_agent.append(upload, 0, CONTENT, is_last=True), 404, "upload_not_found")
        refuse(foreign_agent.cancel(upload), 404, "upload_not_found")
    refuse(cast.anonymous.append(upload, 0, CONTENT), 401, "authentication_required")
    assert offset_of(cast.agent.progress(upload)) == ("0", "?0")


def test_an_operation_begun_by_others_is_another(cast: Cast) -> None:
    operation_id = uuid4()
    first = begun(cast.agent, operationId=operation_id)
    for other in (cast.colleague, cast.foreign_agent, cast.foreign_agent_for_p3):
        own = begun(other, operationId=operation_id)
        assert own.headers["Location"] != first.headers["Location"]
        other.cancel(own)
    refuse(cast.for_p1.begin(len(CONTENT), operationId=operation_id), 409, "operation_conflict")
    assert begun(cast.agent, operationId=operation_id).headers["Location"] == first.headers["Location"]


def test_owner_and_payer_are_those_of_the_beginning(cast: Cast) -> None:
    upload = begun(cast.for_p1)
    direct = replace(cast.for_p1, headers={k: v for k, v in cast.for_p1.headers.items() if k != ATTRIBUTION})
    direct.append(upload, 0, CONTENT[:10])
    file = succeed(direct.append(upload, 10, CONTENT[10:], is_last=True), 201)
    assert succeed(cast.for_p1.metadata(file))["owner"]["id"] == str(cast.for_p1.owner_id)
    refuse(direct.metadata(file), 404, "file_not_found")


def test_the_owner_is_judged_again_at_the_end(cast: Cast) -> None:
    front = cast.front
    deployment, _ = cast.newcomer()
    principal = front.identity.principal(cast.acme).id
    asker = on_behalf_of(front, deployment, principal, payer_id=cast.acme)
    upload = begun(asker)
    direct = replace(asker, headers={k: v for k, v in asker.headers.items() if k != ATTRIBUTION})
    run_sql(front, "UPDATE identities SET disabled_at = now() WHERE id = :id", id=principal)
    refuse(direct.append(upload, 0, CONTENT, is_last=True), 401, "attribution_invalid")


def test_the_executor_is_judged_again_at_the_end(cast: Cast) -> None:
    deployment, asker = cast.newcomer()
    upload = begun(asker)
    asker.append(upload, 0, CONTENT[:10])
    demote(cast.front, deployment)
    answer = asker.append(upload, 10, CONTENT[10:], is_last=True)
    refuse(answer, 403, "permission_denied")


def test_users_begin_no_upload(cast: Cast) -> None:
    refuse(cast.owner.begin(10), 403, "owner_required")


def test_a_person_replaces_in_pieces(cast: Cast) -> None:
    file = succeed(cast.agent.upload(b"before"), 201)
    upload = begun(cast.owner, replacing=file)
    newer = succeed(cast.owner.append(upload, 0, CONTENT, is_last=True))
    assert newer["revision"] == 2


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Upload-Complete": "yes"}, 400, "malformed_request"),
        ({"Upload-Complete": "?1"}, 415, "unsupported_media_type"),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 415, "unsupported_media_type"),
        ({"Content-Disposition": "attachment"}, 422, "validation_failed"),
        ({"Content-Type": "nonsense"}, 422, "validation_failed"),
        ({"Upload-Length": "-1"}, 400, "malformed_request"),
        ({"Repr-Digest": "sha-256=:eHg=:"}, 400, "malformed_request"),
    ],
)
def test_a_beginning_of_another_form_is_refused(
    cast: Cast, headers: dict[str, str], status: int, code: str
) -> None:
    refuse(cast.agent.begin(10, headers=headers), status, code)


def test_a_beginning_too_large_is_refused(cast: Cast) -> None:
    refuse(cast.agent.begin((5 << 30) + 1), 413, "content_too_large")


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Content-Type": "text/plain"}, 415, "unsupported_media_type"),
        ({"Upload-Offset": "x"}, 400, "malformed_request"),
        ({"Upload-Offset": ""}, 400, "malformed_request"),
        ({"Upload-Complete": "1"}, 400, "malformed_request"),
    ],
)
def test_content_of_another_form_is_refused(
    cast: Cast, headers: dict[str, str], status: int, code: str
) -> None:
    refuse(cast.agent.append(begun(cast.agent), 0, b"x", headers=headers), status, code)


def test_a_multipart_upload_may_say_that_it_is_complete(cast: Cast) -> None:
    succeed(cast.agent.upload(b"whole", headers={"Upload-Complete": "?1"}), 201)


def test_open_uploads_are_bounded_for_each_caller_and_organization(
    database_url: str, valkey_server: EmbeddedValkey, tmp_path: Path
) -> None:
    bounds = {"open_uploads_per_caller": 2, "open_uploads_per_organization": 3}
    with open_front(database_url, valkey_server.url, tmp_path, any_store=True, **bounds) as front:
        organization = front.identity.organization("Bounded").id
        first_agent, second_agent = (
            Asker(front=front, headers={"Authorization": front.identity.authorization(made)})
            for made in (front.identity.deployment(organization) for _ in range(2))
        )
        first = begun(first_agent)
        begun(first_agent)
        limited = first_agent.begin(10)
        assert refuse(limited, 429, "too_many_uploads")["maximum"] == 2
        assert limited.headers["Retry-After"]
        begun(second_agent)
        assert refuse(second_agent.begin(10), 429, "too_many_uploads")["maximum"] == 3
        first_agent.cancel(first)
        begun(second_agent)


def test_full_disk_keeps_acknowledged_content(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    upload = begun(cast.agent)
    cast.agent.append(upload, 0, CONTENT[:100])

    def refuse_bytes(*_: object) -> None:
        raise StorageFull

    with monkeypatch.context() as patch:
        patch.setattr(LocalReceiver, "write", refuse_bytes)
        answer = cast.agent.append(upload, 100, CONTENT[100:])
        refuse(answer, 507, "storage_full")
        assert offset_of(answer) == ("100", "?0")
    succeed(cast.agent.append(upload, 100, CONTENT[100:], is_last=True), 201)


def count_pieces(front: Front, upload: TestResponse) -> int:
    return len(run_sql(front, "SELECT FROM upload_pieces WHERE upload_id = :id", id=id_of(upload)))


def collect(front: Front) -> None:
    collect_garbage(front.services.database, front.services.blobs)


@contextmanager
def leaving_nothing_kept(front: Front) -> Iterator[None]:
    """Fail unless the block leaves nothing after garbage collection."""
    collect(front)
    with leaving_nothing(front):
        yield
        collect(front)


def id_of(upload: TestResponse) -> str:
    return path_of(upload).rpartition("/")[2]


def pass_time(front: Front, upload: TestResponse, column: str) -> None:
    """Let an upload's deadline pass."""
    statement = f"UPDATE resumable_uploads SET {column} = {column} - :passed WHERE id = :id"
    run_sql(front, statement, id=id_of(upload), passed=timedelta(days=1, seconds=1))
