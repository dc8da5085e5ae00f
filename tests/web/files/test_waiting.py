"""201 or 202: how long a client waits until its write is placed, with both kinds of store.

Specified in docs/specification/files.md#upload.

In a local store committed content can be read at once. In S3 it cannot before a worker has completed the upload, so the
web process waits for that, bounded, and reports `Pending` until then.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import pytest

from deploy.embedded.valkey import EmbeddedValkey
from shared.files.blobs import S3Access
from shared.files.lifecycle.expiry import expire_due
from shared.files.lifecycle.garbage_collection import collect_garbage
from shared.files.lifecycle.placement import place_staged
from tests.contracts.blob_stores import S3Bench
from tests.support.files.file_requests import Asker, count_rows, expire, refuse, run_sql, succeed
from tests.support.web.web_process import Front, open_front
from tests.web.files.conftest import Cast, make_cast


@pytest.fixture(scope="module")
def s3(moto: S3Access) -> S3Access:
    S3Bench("s3://waiting/files", moto)
    return moto


@contextmanager
def open_remote(
    database_url: str, valkey: EmbeddedValkey, s3: S3Access, wait_seconds: float
) -> Iterator[Cast]:
    """Create the cast of a web process that stores on S3 and waits at most so long."""
    with open_front(
        database_url,
        valkey.url,
        Path("/nowhere"),
        blob_store="s3://waiting/files",
        s3_endpoint_url=s3.endpoint_url,
        s3_region=s3.region,
        s3_access_key_id=s3.access_key_id,
        s3_secret_access_key=s3.secret_access_key,
        upload_wait_seconds=wait_seconds,
        any_store=True,
    ) as front:
        assert front.services.blobs.staged_is_readable is False
        yield make_cast(front)


@pytest.fixture(scope="module")
def remote(database_url: str, valkey_server: EmbeddedValkey, s3: S3Access) -> Iterator[Cast]:
    """The cast of a web process that waits a quarter of a second at most."""
    with open_remote(database_url, valkey_server, s3, 0.25) as cast:
        yield cast


@pytest.fixture(scope="module")
def patient(database_url: str, valkey_server: EmbeddedValkey, s3: S3Access) -> Iterator[Cast]:
    """The cast of a web process that waits as long as a busy machine may need to place a write."""
    with open_remote(database_url, valkey_server, s3, 30.0) as cast:
        yield cast


@pytest.fixture
def working(patient: Cast) -> Iterator[Cast]:
    """The same, with a worker that places committed content."""
    services, over = patient.front.services, Event()

    def work() -> None:
        while not over.wait(0.01):
            place_staged(services.database, services.blobs)

    with ThreadPoolExecutor(1) as worker:
        working = worker.submit(work)
        yield patient
        over.set()
        working.result()


def place(front: Front) -> None:
    place_staged(front.services.database, front.services.blobs)


def test_a_local_write_is_available_at_once(cast: Cast) -> None:
    answer = cast.agent.upload()
    succeed(answer, 201)
    assert "Preference-Applied" not in answer.headers
    assert succeed(cast.agent.metadata(answer.json))["availability"] == "Available"


def test_a_client_that_does_not_want_to_wait_is_answered_202(cast: Cast) -> None:
    for answer in (
        cast.agent.upload(b"x", headers={"Prefer": "respond-async"}),
        cast.agent.replace(
            succeed(cast.agent.upload(), 201), b"x", headers={"Prefer": "RESPOND-ASYNC, wait=10"}
        ),
    ):
        pending = succeed(answer, 202)
        assert pending["availability"] == "Pending"
        assert answer.headers["Preference-Applied"] == "respond-async"
        assert answer.headers["Location"] == f"http://localhost/files/{pending['id']}"
        assert succeed(cast.agent.metadata(pending))["availability"] == "Available"
        assert cast.agent.content(pending).data == b"x"


def test_a_replay_is_an_answer_at_once(cast: Cast) -> None:
    operation_id = uuid4()
    prefer = {"Prefer": "respond-async"}
    first = succeed(cast.agent.upload(operationId=operation_id, headers=prefer), 202)
    again = succeed(cast.agent.upload(operationId=operation_id, headers=prefer), 200)
    first.pop("availability")
    assert again == {**first, "replayed": True}


@pytest.mark.parametrize(
    ("prefer", "applied"),
    [
        ("wait=5", "wait=5"),
        ("wait=0", "wait=0"),
        ('wait="7"', "wait=7"),
        ("foo, wait=9; x=1", "wait=9"),
        ("wait=99999", "wait=30"),
        ("wait=-1", None),
        ("wait=abc", None),
        ("", None),
        ("return=minimal", None),
    ],
)
def test_a_wait_is_applied_as_far_as_the_service_waits(cast: Cast, prefer: str, applied: str | None) -> None:
    answer = cast.agent.upload(headers={"Prefer": prefer})
    succeed(answer, 201)
    assert answer.headers.get("Preference-Applied") == applied


def test_a_remote_write_is_pending_until_a_worker_has_placed_it(remote: Cast) -> None:
    front, agent = remote.front, remote.agent
    answer = agent.upload(b"first", headers={"Prefer": "wait=0"})
    file = succeed(answer, 202)
    assert (file["availability"], file["revision"], file["replayed"]) == ("Pending", 1, False)
    assert succeed(agent.metadata(file))["availability"] == "Pending"
    link = succeed(agent.grant(file), 201)["url"]
    for refused in (agent.content(file), remote.anonymous.follow(link)):
        refuse(refused, 409, "file_pending")
        assert refused.headers["Retry-After"] == "1"
    assert ids(agent, "Pending") == {file["id"]}
    place(front)
    assert succeed(agent.metadata(file))["availability"] == "Available"
    assert agent.content(file).data == remote.anonymous.follow(link).data == b"first"
    assert ids(agent, "Pending") == set()
    assert file["id"] in ids(agent, "Available")


def test_a_remote_replay_is_pending_as_long_as_its_content(remote: Cast) -> None:
    operation_id = uuid4()
    now = {"Prefer": "wait=0"}
    succeed(remote.agent.upload(operationId=operation_id, headers=now), 202)
    again = succeed(remote.agent.upload(operationId=operation_id, headers=now), 202)
    assert (again["availability"], again["replayed"]) == ("Pending", True)
    place(remote.front)
    placed = succeed(remote.agent.upload(operationId=operation_id, headers=now), 200)
    assert placed["replayed"] is True


@pytest.mark.parametrize("is_collected", [False, True])
def test_remote_replay_of_a_deleted_file_is_not_pending(remote: Cast, *, is_collected: bool) -> None:
    operation_id = uuid4()
    now = {"Prefer": "wait=0"}
    file = succeed(remote.agent.upload(operationId=operation_id, headers=now), 202)
    succeed(remote.admin.delete(file))
    if is_collected:
        collect_garbage(remote.front.services.database, remote.front.services.blobs)
    assert succeed(remote.agent.upload(operationId=operation_id, headers=now), 200)["replayed"] is True


def test_the_front_waits_for_the_worker_and_answers_201(working: Cast) -> None:
    file = succeed(working.agent.upload(b"first", headers={"Prefer": "wait=30"}), 201)
    assert working.agent.content(file).data == b"first"


def test_every_route_serves_a_remote_store(working: Cast) -> None:
    """All operations on a file, with S3."""
    agent, front = working.agent, working.front
    content = bytes(range(256)) * 100
    file = stored(agent, agent.upload(content, retentionExpiresAt="2090-01-01T00:00:00Z"))
    assert agent.content(file).data == content
    assert agent.content(file, headers={"Range": "bytes=1000-1999"}).data == content[1000:2000]
    assert agent.content(file, method="HEAD").headers["Content-Length"] == str(len(content))
    second = stored(agent, agent.replace(file, b"second"))
    assert second["revision"] == 2
    assert agent.content(file).data == b"second"
    assert agent.content(file, versionId=file["versionId"]).data == content
    link = succeed(agent.grant(file), 201)["url"]
    assert working.anonymous.follow(link).data == content
    succeed(agent.renew(file, None))
    succeed(agent.refer(file), 201)
    refuse(working.admin.delete(file), 409, "file_referenced")
    assert agent.release(file).status_code == 204
    succeed(working.admin.delete(file))
    refuse(working.anonymous.follow(link), 410, "grant_expired")
    refuse(agent.content(file), 410, "file_deleted")
    collect_garbage(front.services.database, front.services.blobs)
    assert not rows_of(front, file)
    empty = stored(agent, agent.upload(b""))
    assert agent.content(empty).data == b""
    expire(front, empty)
    refuse(agent.content(empty), 410, "file_expired")
    expire_due(front.services.database, front.services.blobs)
    assert not rows_of(front, empty)


def test_a_refused_remote_upload_leaves_nothing(remote: Cast) -> None:
    front = remote.front
    collect_garbage(front.services.database, front.services.blobs)
    before = count_rows(front)
    refuse(remote.agent.upload(b"123", byteSize=4), 422, "byte_size_mismatch")
    refuse(remote.agent.upload(b"123", byteSize=2), 422, "byte_size_mismatch")
    refuse(remote.agent.upload(b"123", byteSize=2**63 - 1), 413, "content_too_large")
    refuse(remote.agent.upload(b"123", file_name=""), 422, "file_part_required")
    collect_garbage(front.services.database, front.services.blobs)
    assert count_rows(front) == before


def stored(asker: Asker, answer: Any) -> Any:
    """Return the result of a write after its placement, whether it was placed in time or not."""
    assert answer.status_code in (200, 201, 202), answer.text
    place(asker.front)
    run_sql(asker.front, "UPDATE blobs SET lease_until = NULL WHERE state = 'staged'")
    place(asker.front)
    return answer.json


def ids(asker: Asker, availability: str) -> set[str]:
    return {file["id"] for file in succeed(asker.list(availability=availability, limit=100))["files"]}


def rows_of(front: Front, file: Any) -> Any:
    return run_sql(
        front,
        "SELECT b.state FROM blobs b JOIN file_versions v ON v.id = b.version_id WHERE v.file_id = :id",
        id=file["id"],
    )
