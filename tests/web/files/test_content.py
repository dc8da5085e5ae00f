"""`GET` and `HEAD /files/{id}/content` with credentials, once each over the route.

Specified in docs/specification/files.md#download.

What ranges and conditions mean in detail is tested at `test_downloads.py`.
"""

import base64
import hashlib
import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from shared.files.blobs.base import BlobDamaged, BlobReader
from shared.files.blobs.chunks import CHECKED_CHUNK_BYTES
from shared.files.lifecycle.garbage_collection import collect_garbage
from shared.files.lifecycle.placement import place_staged
from tests.support.files.file_requests import refuse, run_sql, succeed
from tests.support.web.web_process import Front
from tests.web.files.conftest import Cast

CONTENT = bytes(range(256)) * 40
DIGEST = hashlib.sha256(CONTENT)


@pytest.fixture(scope="module")
def file(cast: Cast) -> Any:
    return succeed(cast.agent.upload(CONTENT, file_name="naïve “x”.bin", media_type="image/png"), 201)


@pytest.mark.parametrize("is_placed", [False, True])
def test_a_download_is_the_content_with_headers_that_describe_it(
    cast: Cast, front: Front, file: Any, *, is_placed: bool
) -> None:
    if is_placed:
        place_staged(front.services.database, front.services.blobs)
    answer = cast.agent.content(file)
    assert (answer.status_code, answer.data) == (200, CONTENT)
    headers = answer.headers
    assert headers["Content-Type"] == "image/png"
    assert headers["Content-Length"] == str(len(CONTENT))
    assert headers["ETag"] == f'"{DIGEST.hexdigest()}"'
    assert headers["Repr-Digest"] == f"sha-256=:{base64.b64encode(DIGEST.digest()).decode()}:"
    assert headers["Content-Disposition"].endswith("filename*=UTF-8''na%C3%AFve%20%E2%80%9Cx%E2%80%9D.bin")
    assert headers["Accept-Ranges"] == "bytes"
    assert headers["Cache-Control"] == "private, no-cache"
    assert headers["Content-Security-Policy"].startswith("sandbox")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"


def test_head_describes_and_sends_nothing(cast: Cast, file: Any) -> None:
    got, head = cast.agent.content(file), cast.agent.content(file, method="HEAD")
    assert (head.status_code, head.data) == (200, b"")
    per_request = {"X-Request-Id", "RateLimit"}
    assert {name: value for name, value in head.headers if name not in per_request} == {
        name: value for name, value in got.headers if name not in per_request
    }


def test_ranges_are_sent_alone_or_as_parts(cast: Cast, file: Any) -> None:
    one = cast.agent.content(file, headers={"Range": "bytes=100-199"})
    assert (one.status_code, one.data) == (206, CONTENT[100:200])
    assert one.headers["Content-Range"] == f"bytes 100-199/{len(CONTENT)}"
    several = cast.agent.content(file, headers={"Range": "bytes=0-1,-1"})
    assert several.status_code == 206
    assert several.mimetype == "multipart/byteranges"
    assert several.data.count(b"Content-Range: ") == 2


def test_conditions_are_honoured(cast: Cast, file: Any) -> None:
    tag = cast.agent.content(file).headers["ETag"]
    assert cast.agent.content(file, headers={"If-None-Match": tag}).status_code == 304
    assert cast.agent.content(file, headers={"If-Range": tag, "Range": "bytes=0-0"}).status_code == 206
    assert cast.agent.content(file, headers={"If-Range": '"x"', "Range": "bytes=0-0"}).status_code == 200
    refuse(cast.agent.content(file, headers={"If-Match": '"x"'}), 412, "version_mismatch")


def test_a_range_beyond_the_end_is_refused(cast: Cast, file: Any) -> None:
    answer = cast.agent.content(file, headers={"Range": f"bytes={len(CONTENT)}-"})
    refuse(answer, 416, "range_not_satisfiable")
    assert answer.headers["Content-Range"] == f"bytes */{len(CONTENT)}"


def test_a_version_is_named_exactly(cast: Cast, file: Any) -> None:
    other = succeed(cast.agent.upload(), 201)
    refuse(cast.agent.content(file, versionId=uuid4()), 404, "version_not_found")
    refuse(cast.agent.content(file, versionId=other["versionId"]), 404, "version_not_found")
    refuse(cast.agent.content(file, versionId="x"), 400, "malformed_request")


def test_lost_bytes_are_an_alarm_and_damaged_ones_are_not_sent(cast: Cast, front: Front) -> None:
    file = succeed(cast.agent.upload(b"precious"), 201)
    (path,) = Path(urlsplit(front.settings.blob_store).path).rglob(file["versionId"])
    for damaged in (b"prec", b"precioux"):
        path.write_bytes(damaged)
        refuse(cast.agent.content(file), 503, "blob_damaged")
    path.unlink()
    refuse(cast.agent.content(file), 503, "blob_missing")


@pytest.mark.parametrize("is_shared", [False, True])
def test_rotten_bytes_never_leave(cast: Cast, front: Front, *, is_shared: bool) -> None:
    content = random.Random(1).randbytes(3 * CHECKED_CHUNK_BYTES + 100)
    file = succeed(cast.agent.upload(content), 201)
    link = succeed(cast.agent.grant(file), 201)["url"]
    place_staged(front.services.database, front.services.blobs)
    path = path_of(front, file)
    rot(path, 2 * CHECKED_CHUNK_BYTES + 5)
    path_of_link = (
        f"{urlsplit(link).path}?{urlsplit(link).query}" if is_shared else f"/files/{file['id']}/content"
    )
    headers = {} if is_shared else cast.agent.headers

    def ask(**sent: str) -> Any:
        return front.app.test_client().get(path_of_link, headers={**headers, **sent}, buffered=True)

    sound = ask(Range=f"bytes=7-{CHECKED_CHUNK_BYTES + 10}")
    assert (sound.status_code, sound.data) == (206, content[7 : CHECKED_CHUNK_BYTES + 11])
    with pytest.raises(BlobDamaged):  # which breaks the connection: see `test_downloads.py`
        ask()
    refuse(ask(), 503, "blob_damaged")  # it was marked, as the scrub does
    forget = (
        "UPDATE blobs SET damaged_at = NULL WHERE version_id = :id AND damaged_at IS NOT NULL RETURNING 1"
    )
    assert len(run_sql(front, forget, id=file["versionId"])) == 1
    # What is found at the beginning is said before anything is promised.
    refuse(ask(Range=f"bytes={2 * CHECKED_CHUNK_BYTES}-"), 503, "blob_damaged")


def test_recently_checked_content_is_checked_again_only_if_its_file_changed(cast: Cast, front: Front) -> None:
    content = random.Random(3).randbytes(2 * CHECKED_CHUNK_BYTES + 1)
    file = succeed(cast.agent.upload(content), 201)
    place_staged(front.services.database, front.services.blobs)
    path, version_id = path_of(front, file), UUID(file["versionId"])
    recent = front.services.recent_checks

    def is_trusted() -> bool:
        with path.open("rb", buffering=0) as stored:
            return recent.has(version_id, stored)

    assert cast.agent.content(file, headers={"Range": "bytes=0-9"}).data == content[:10]
    assert not is_trusted()
    assert cast.agent.content(file).data == content
    assert is_trusted()
    assert cast.agent.content(file).data == content
    before = path.stat()
    rot(path, CHECKED_CHUNK_BYTES + 5)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not is_trusted()
    with pytest.raises(BlobDamaged):
        front.app.test_client().get(f"/files/{file['id']}/content", headers=cast.agent.headers, buffered=True)
    assert not is_trusted()


def test_ranges_of_checked_content_are_exact(cast: Cast) -> None:
    content = random.Random(2).randbytes(2 * CHECKED_CHUNK_BYTES + 1)
    file = succeed(cast.agent.upload(content), 201)
    assert cast.agent.content(file).data == content
    edge = CHECKED_CHUNK_BYTES
    for start, stop in (
        (0, 1),
        (edge - 1, edge),
        (edge - 1, edge + 1),
        (edge, 2 * edge),
        (1, 2 * edge + 1),
        (2 * edge, 2 * edge + 1),
    ):
        answer = cast.agent.content(file, headers={"Range": f"bytes={start}-{stop - 1}"})
        assert answer.data == content[start:stop]
    both = cast.agent.content(file, headers={"Range": f"bytes=0-9,{edge}-{edge + 9}"})
    assert content[:10] in both.data
    assert content[edge : edge + 10] in both.data


def path_of(front: Front, file: Any) -> Path:
    (path,) = Path(urlsplit(front.settings.blob_store).path).rglob(file["versionId"])
    return path


def rot(path: Path, at: int) -> None:
    """Change one bit."""
    with path.open("r+b") as stored:
        stored.seek(at)
        (byte,) = stored.read(1)
        stored.seek(at)
        stored.write(bytes([byte ^ 1]))


def test_damaged_content_is_refused_to_every_reader(cast: Cast, front: Front) -> None:
    file = succeed(cast.agent.upload(b"precious"), 201)
    link = succeed(cast.agent.grant(file), 201)["url"]
    newer = succeed(cast.agent.replace(file, b"newer"))
    with front.services.database.autocommit() as session:
        mark = text("UPDATE blobs SET damaged_at = now() WHERE version_id = :id")
        session.execute(mark, {"id": file["versionId"]})
    refuse(cast.agent.content(file, versionId=file["versionId"]), 503, "blob_damaged")
    refuse(cast.anonymous.follow(link), 503, "blob_damaged")
    assert cast.agent.content(newer).data == b"newer"


@pytest.mark.parametrize("is_shared", [False, True])
def test_download_that_loses_to_a_deletion_gets_410(
    cast: Cast, front: Front, monkeypatch: pytest.MonkeyPatch, *, is_shared: bool
) -> None:
    """The file ends, with its bytes, between the read of its row and the read of its bytes."""
    file = succeed(cast.agent.upload(b"about to go"), 201)
    link = succeed(cast.agent.grant(file), 201)["url"]
    services = front.services
    open_blob = services.blobs.open

    def delete_first(version_id: UUID, *, placed: bool) -> BlobReader:
        with ThreadPoolExecutor(1) as another:
            succeed(another.submit(cast.admin.delete, file).result())
        collect_garbage(services.database, services.blobs)
        return open_blob(version_id, placed=placed)

    monkeypatch.setattr(services.blobs, "open", delete_first)
    if is_shared:
        refuse(cast.anonymous.follow(link), 410, "grant_expired")
    else:
        refuse(cast.agent.content(file), 410, "file_deleted")
