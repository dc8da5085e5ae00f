"""One operationId of one executing identity has one effect and one result.

Specified in docs/specification/files.md#idempotency.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import event
from werkzeug.test import TestResponse

from shared.files.access import lock_file
from shared.files.lifecycle.garbage_collection import collect_garbage
from shared.files.lifecycle.placement import place_staged
from shared.files.sweeps import sweep_staging
from tests.support.files.bodies import CONTENT_TYPE, multipart
from tests.support.files.file_requests import (
    count_rows,
    expire,
    leaving_nothing,
    refuse,
    stored_names,
    succeed,
)
from tests.support.web.web_process import Front
from tests.web.files.conftest import Cast, agent_of, demote, on_behalf_of, promote

TIMES = 6


@pytest.fixture
def file(cast: Cast) -> Any:
    return succeed(cast.agent.upload(b"first"), 201)


def at_once(asks: Sequence[Callable[[], TestResponse]]) -> list[TestResponse]:
    """Send from as many threads at the same moment; return the responses in order."""
    barrier = threading.Barrier(len(asks))

    def ask(one: Callable[[], TestResponse]) -> TestResponse:
        barrier.wait()
        return one()

    with ThreadPoolExecutor(len(asks)) as threads:
        return list(threads.map(ask, asks))


@contextmanager
def short_lock_waits(front: Front) -> Iterator[None]:
    """Set the lock timeout of statements to 50 ms instead of ten seconds."""

    def shorten(connection: Any, *_: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '50ms'")
        connection.commit()

    def restore(connection: Any, *_: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute("RESET lock_timeout")
        connection.commit()

    engine = front.services.database.engine
    event.listen(engine, "checkout", shorten)
    event.listen(engine, "checkin", restore)
    front.services.database._statements.dispose()  # these stay checked out, and are to be taken anew
    yield
    front.services.database._statements.dispose()
    event.remove(engine, "checkout", shorten)
    event.remove(engine, "checkin", restore)


def without_replayed(body: Any) -> Any:
    return {name: value for name, value in body.items() if name != "replayed"}


def test_a_retried_upload_gets_the_first_result_again(cast: Cast, front: Front) -> None:
    operation_id = uuid4()
    first = succeed(cast.agent.upload(operationId=operation_id), 201)
    with leaving_nothing(front):
        for _ in range(3):
            again = succeed(cast.agent.upload(operationId=operation_id), 200)
            assert again["replayed"] is True
            assert without_replayed(again) == without_replayed(first)


def test_a_retried_replace_gets_the_first_result_again(cast: Cast, front: Front, file: Any) -> None:
    operation_id = uuid4()
    first = succeed(cast.agent.replace(file, operationId=operation_id))
    with leaving_nothing(front):
        again = succeed(cast.agent.replace(file, operationId=operation_id))
    assert (first["replayed"], again["replayed"]) == (False, True)
    assert without_replayed(again) == without_replayed(first)
    assert succeed(cast.agent.metadata(file))["revision"] == 2


def test_a_retried_delete_gets_the_first_result_again(cast: Cast, front: Front, file: Any) -> None:
    operation_id = uuid4()
    first = succeed(cast.admin.delete(file, operationId=operation_id))
    with leaving_nothing(front):
        again = succeed(cast.admin.delete(file, operationId=operation_id))
    assert (first["replayed"], again["replayed"]) == (False, True)
    assert without_replayed(again) == without_replayed(first)


@pytest.mark.parametrize(
    "difference",
    [
        {"content": b"other!!"},
        {"file_name": "other.txt"},
        {"media_type": "text/html"},
        {"retentionExpiresAt": "2090-01-01T00:00:00Z"},
        {"associationKind": "Task", "associationId": "t-1"},
        {"content": b"longer than before"},
        {"byteSize": 8},
    ],
    ids="-".join,
)
def test_an_upload_that_differs_in_anything_is_a_conflict(
    cast: Cast, front: Front, difference: dict[str, Any]
) -> None:
    operation_id = uuid4()
    succeed(cast.agent.upload(b"content", operationId=operation_id), 201)
    with leaving_nothing(front):
        refuse(cast.agent.upload(**difference, operationId=operation_id), 409, "operation_conflict")


def test_an_operation_id_belongs_to_one_owner_of_one_executor(cast: Cast, front: Front) -> None:
    operation_id = uuid4()
    succeed(cast.agent.upload(operationId=operation_id), 201)
    with leaving_nothing(front):
        refuse(cast.for_p1.upload(operationId=operation_id), 409, "operation_conflict")


@pytest.mark.parametrize(
    "difference",
    [{"content": b"other content"}, {"file_name": "other.txt"}, {"expectedRevision": 2}, {"byteSize": 14}],
    ids="-".join,
)
def test_a_replace_that_differs_in_anything_is_a_conflict(
    cast: Cast, front: Front, file: Any, difference: dict[str, Any]
) -> None:
    operation_id = uuid4()
    succeed(cast.agent.replace(file, operationId=operation_id))
    other = succeed(cast.agent.upload(b"other"), 201)
    with leaving_nothing(front):
        refuse(cast.agent.replace(file, operationId=operation_id, **difference), 409, "operation_conflict")
        refuse(cast.agent.replace(other, operationId=operation_id), 409, "operation_conflict")


def test_a_delete_of_another_file_is_a_conflict(cast: Cast, front: Front, file: Any) -> None:
    operation_id = uuid4()
    other = succeed(cast.agent.upload(b"other"), 201)
    succeed(cast.admin.delete(file, operationId=operation_id))
    with leaving_nothing(front):
        refuse(cast.admin.delete(other, operationId=operation_id), 409, "operation_conflict")


def test_each_kind_of_write_and_each_executor_has_its_own_ids(cast: Cast) -> None:
    operation_id = uuid4()
    file = succeed(cast.agent.upload(operationId=operation_id), 201)
    other = succeed(cast.colleague.upload(operationId=operation_id), 201)
    assert other["id"] != file["id"]
    replaced = succeed(cast.agent.replace(file, operationId=operation_id))
    assert replaced["replayed"] is False
    assert succeed(cast.admin.delete(file, operationId=operation_id))["replayed"] is False
    assert succeed(cast.owner.delete(other, operationId=operation_id))["replayed"] is False


@pytest.mark.parametrize("other", ["colleague", "colleague_for_p1", "foreign_agent", "foreign_agent_for_p3"])
def test_operation_id_of_another_caller_reveals_nothing(cast: Cast, other: str) -> None:
    """The operation is of another deployment, for another identity, or in another organization."""
    operation_id = uuid4()
    first = succeed(cast.agent.upload(operationId=operation_id), 201)
    own = succeed(getattr(cast, other).upload(operationId=operation_id), 201)
    assert (own["replayed"], own["id"] == first["id"]) == (False, False)
    again = succeed(cast.agent.upload(operationId=operation_id))
    assert (again["replayed"], again["id"]) == (True, first["id"])


def test_a_refused_attempt_leaves_the_id_free(cast: Cast) -> None:
    operation_id = uuid4()
    refuse(cast.agent.upload(b"123", operationId=operation_id, byteSize=4), 422, "byte_size_mismatch")
    assert succeed(cast.agent.upload(b"123", operationId=operation_id), 201)["replayed"] is False


def test_a_retry_with_a_broken_body_is_no_replay(cast: Cast, front: Front) -> None:
    operation_id = uuid4()
    succeed(cast.agent.upload(b"1234", operationId=operation_id), 201)
    with leaving_nothing(front):
        refuse(cast.agent.upload(b"123", operationId=operation_id, byteSize=4), 422, "byte_size_mismatch")
        answer = cast.agent.ask(
            "POST",
            "/files/agent-artifacts",
            {"operationId": operation_id, "byteSize": 4},
            data=multipart(b"1234")[:-8],
            content_type=CONTENT_TYPE,
        )
        refuse(answer, 400, "malformed_request")


def test_replay_returns_the_result_after_the_file_changed_or_ended(cast: Cast, front: Front) -> None:
    upload_id, replace_id, delete_id = uuid4(), uuid4(), uuid4()
    deadline = "2090-01-01T00:00:00Z"

    def upload() -> TestResponse:
        return cast.agent.upload(b"first", operationId=upload_id, retentionExpiresAt=deadline)

    def replace() -> TestResponse:
        return cast.agent.replace(file, operationId=replace_id)

    def replays() -> None:
        assert without_replayed(succeed(upload(), 200)) == without_replayed(file)
        assert without_replayed(succeed(replace(), 200)) == without_replayed(replaced)

    file = succeed(upload(), 201)
    replaced = succeed(replace())
    succeed(cast.agent.replace(replaced, b"third"))
    replays()
    succeed(cast.agent.renew(file, None))
    replays()
    deleted = succeed(cast.admin.delete(file, operationId=delete_id))
    replays()
    collect_garbage(front.services.database, front.services.blobs)
    replays()
    again = succeed(cast.admin.delete(file, operationId=delete_id))
    assert without_replayed(again) == without_replayed(deleted)


def test_replays_outlive_the_files_expiry(cast: Cast, front: Front) -> None:
    operation_id = uuid4()
    file = succeed(cast.agent.upload(operationId=operation_id), 201)
    expire(front, file)
    assert succeed(cast.agent.upload(operationId=operation_id), 200)["replayed"] is True
    refuse(cast.agent.content(file), 410, "file_expired")


def test_revoking_a_right_stops_replays_too(cast: Cast, front: Front) -> None:
    created, _ = cast.newcomer()
    promote(front, created)
    asker = agent_of(front, created)
    upload_id, replace_id, delete_id = uuid4(), uuid4(), uuid4()
    file = succeed(asker.upload(operationId=upload_id), 201)
    succeed(asker.replace(file, operationId=replace_id))
    succeed(asker.delete(file, operationId=delete_id))
    demote(front, created)
    refuse(asker.upload(operationId=upload_id), 403, "permission_denied")
    refuse(asker.replace(file, operationId=replace_id), 403, "permission_denied")
    refuse(asker.delete(file, operationId=delete_id), 403, "permission_denied")


def test_a_replay_is_refused_outside_the_owner_scope(cast: Cast, front: Front) -> None:
    created, asker = cast.newcomer()
    p1 = cast.for_p1.owner_id
    assert p1 is not None
    for_p1 = on_behalf_of(front, created, p1, payer_id=cast.acme)
    operation_id = uuid4()
    file = succeed(for_p1.upload(), 201)
    succeed(for_p1.replace(file, operationId=operation_id))
    refuse(asker.replace(file, operationId=operation_id), 404, "file_not_found")


def test_simultaneous_uploads_of_one_id_have_one_effect(cast: Cast, front: Front) -> None:
    operation_id, before = uuid4(), count_rows(front)
    answers = at_once([lambda: cast.agent.upload(b"same", operationId=operation_id)] * TIMES)
    assert sorted(answer.status_code for answer in answers) == [200] * (TIMES - 1) + [201]
    assert len({str(without_replayed(answer.json)) for answer in answers}) == 1
    after = count_rows(front)
    for table in ("files", "file_versions", "blobs", "file_operations"):
        assert after[table] == before[table] + 1, table
    place_staged(front.services.database, front.services.blobs)
    sweep_staging(front.services.database, front.services.blobs)
    assert len(stored_names(front)) == count_rows(front)["blobs"]


def test_simultaneous_uploads_of_different_content_under_one_id_store_one(cast: Cast, front: Front) -> None:
    operation_id, before = uuid4(), count_rows(front)["files"]
    contents = [f"content {number}".encode() for number in range(TIMES)]
    answers = at_once([partial(cast.agent.upload, content, operationId=operation_id) for content in contents])
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * (TIMES - 1)
    assert count_rows(front)["files"] == before + 1
    for content, answer in zip(contents, answers, strict=True):
        if answer.status_code == 201:
            assert cast.agent.content(answer.json).data == content
        else:
            refuse(answer, 409, "operation_conflict")


def test_simultaneous_replaces_of_one_id_have_one_effect(cast: Cast, file: Any) -> None:
    operation_id = uuid4()
    answers = at_once([lambda: cast.agent.replace(file, b"second", operationId=operation_id)] * TIMES)
    bodies = [succeed(answer) for answer in answers]
    assert sorted(body["replayed"] for body in bodies) == [False] + [True] * (TIMES - 1)
    assert len({str(without_replayed(body)) for body in bodies}) == 1
    assert succeed(cast.agent.metadata(file))["revision"] == 2


def test_simultaneous_deletes_of_one_id_have_one_effect(cast: Cast, file: Any) -> None:
    operation_id = uuid4()
    answers = at_once([lambda: cast.admin.delete(file, operationId=operation_id)] * TIMES)
    bodies = [succeed(answer) for answer in answers]
    assert sorted(body["replayed"] for body in bodies) == [False] + [True] * (TIMES - 1)
    assert len({body["deletedAt"] for body in bodies}) == 1


@pytest.mark.parametrize("kind", ["delete", "replace"])
def test_one_id_used_for_several_files_at_once_serves_one_of_them(cast: Cast, kind: str) -> None:
    files = [succeed(cast.agent.upload(), 201) for _ in range(TIMES)]
    operation_id = uuid4()
    write = cast.admin.delete if kind == "delete" else cast.agent.replace
    answers = at_once([partial(write, file, operationId=operation_id) for file in files])
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * (TIMES - 1)
    for answer in answers:
        if answer.status_code == 409:
            refuse(answer, 409, "operation_conflict")


def test_retry_during_an_unfinished_first_attempt_gets_retry_after(
    cast: Cast, front: Front, file: Any
) -> None:
    """Another transaction has locked the file's row; a request that waits for it fails after the lock timeout."""
    with front.services.database.transaction() as other:
        lock_file(other, UUID(file["id"]))
        with short_lock_waits(front):
            for answer in (cast.admin.delete(file), cast.agent.replace(file)):
                refuse(answer, 409, "operation_in_progress")
                assert answer.headers["Retry-After"] == "1"
            refuse(cast.agent.refer(file), 503, "unavailable")
            refuse(cast.agent.renew(file, None), 503, "unavailable")
            refuse(cast.foreign_agent.delete(file), 404, "file_not_found")
            refuse(cast.foreign_agent.refer(file), 404, "file_not_found")
    succeed(cast.admin.delete(file))
