"""`POST /files/agent-artifacts` (docs/specification/files.md#upload): what an upload stores, returns and refuses."""

import base64
import errno
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import UUID, uuid4

import pytest
import requests

import web
from deploy.embedded.valkey import EmbeddedValkey
from shared.errors import DomainError
from shared.files.blobs.base import BlobStoreUnavailable, StorageFull
from shared.files.blobs.staging import LocalReceiver
from tests.support.files.file_requests import fields_of, leaving_nothing, refuse, succeed
from tests.support.files.serving import gunicorn
from tests.support.web.web_process import Front, open_front
from tests.web.files.conftest import Cast

RESULT = {"id", "versionId", "revision", "url", "purpose", "metadata", "replayed"}
METADATA = {"fileName", "mediaType", "byteSize", "contentSha256", "createdAt", "retentionExpiresAt"}
FILE = {
    "id",
    "versionId",
    "revision",
    "organizationId",
    "purpose",
    "owner",
    "availability",
    "metadata",
    "retentionRenewalSupported",
    "canRenewRetention",
}


def in_seconds(seconds: float) -> str:
    """Return a time that is so many seconds away."""
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    return at.replace(tzinfo=None).isoformat() + "Z"


def test_a_first_upload_answers_the_whole_upload_result(cast: Cast) -> None:
    content = b"the quarterly numbers"
    answer = cast.agent.upload(content, file_name="numbers.csv", media_type="text/csv")
    result = succeed(answer, 201)
    assert set(result) == RESULT
    assert (result["revision"], result["purpose"], result["replayed"]) == (1, "AgentArtifact", False)
    assert result["url"] == f"http://localhost/files/{result['id']}/content"
    assert answer.headers["Location"] == f"http://localhost/files/{result['id']}"
    assert UUID(result["id"]).version == UUID(result["versionId"]).version == 7
    assert set(result["metadata"]) == METADATA
    assert result["metadata"]["fileName"] == "numbers.csv"
    assert result["metadata"]["mediaType"] == "text/csv"
    assert result["metadata"]["byteSize"] == len(content)
    assert result["metadata"]["contentSha256"] == hashlib.sha256(content).hexdigest()
    assert result["metadata"]["retentionExpiresAt"] is None
    assert result["metadata"]["createdAt"].endswith("Z")


def test_the_metadata_read_answers_the_whole_file(cast: Cast) -> None:
    uploaded = succeed(cast.agent.upload(b"content"), 201)
    file = succeed(cast.agent.metadata(uploaded))
    assert set(file) == FILE
    assert file["metadata"] == uploaded["metadata"]
    assert {name: file[name] for name in ("id", "versionId", "revision", "purpose")} == {
        name: uploaded[name] for name in ("id", "versionId", "revision", "purpose")
    }
    assert file["availability"] == "Available"
    assert file["organizationId"] == str(cast.acme)
    assert file["owner"] == {"kind": "DaemonIdentity", "id": str(cast.agent.owner_id)}


def test_download_equals_the_upload(cast: Cast) -> None:
    content = bytes(range(256)) * 5000
    uploaded = succeed(cast.agent.upload(content, media_type="application/octet-stream"), 201)
    assert cast.agent.content(uploaded).data == content


def test_an_empty_file_is_a_file(cast: Cast) -> None:
    uploaded = succeed(cast.agent.upload(b""), 201)
    assert uploaded["metadata"]["byteSize"] == 0
    assert cast.agent.content(uploaded).data == b""


def test_a_deadline_is_kept_to_the_microsecond(cast: Cast) -> None:
    deadline = "2090-01-31T12:00:00.123456Z"
    uploaded = succeed(cast.agent.upload(retentionExpiresAt=deadline), 201)
    assert uploaded["metadata"]["retentionExpiresAt"] == deadline
    assert succeed(cast.agent.metadata(uploaded))["metadata"]["retentionExpiresAt"] == deadline


def test_retention_may_be_as_long_as_a_time_can_say(cast: Cast) -> None:
    last = "9999-12-31T23:59:59.999999Z"
    file = succeed(cast.agent.upload(retentionExpiresAt=last), 201)
    assert succeed(cast.agent.metadata(file))["metadata"]["retentionExpiresAt"] == last
    assert succeed(cast.agent.renew(file, last))["metadata"]["retentionExpiresAt"] == last
    assert succeed(cast.agent.grant(file), 201)["retentionExpiresAt"] == last


def test_a_deadline_may_be_written_with_a_zero_offset(cast: Cast) -> None:
    uploaded = succeed(cast.agent.upload(retentionExpiresAt="2090-01-31T12:00:00+00:00"), 201)
    assert uploaded["metadata"]["retentionExpiresAt"] == "2090-01-31T12:00:00Z"


@pytest.mark.parametrize("seconds", [-86_400.0, -1.0])
def test_a_deadline_that_has_passed_is_refused(cast: Cast, front: Front, seconds: float) -> None:
    with leaving_nothing(front):
        problem = refuse(cast.agent.upload(retentionExpiresAt=in_seconds(seconds)), 422, "validation_failed")
    assert fields_of(problem) == {("query", "retentionExpiresAt")}


def test_the_verified_payer_may_be_named_and_no_other(cast: Cast, front: Front) -> None:
    succeed(cast.agent.upload(organizationId=cast.acme), 201)
    succeed(cast.for_p1.upload(organizationId=cast.acme), 201)
    with leaving_nothing(front):
        refuse(cast.agent.upload(organizationId=cast.globex), 403, "payer_mismatch")
        refuse(cast.for_p1.upload(organizationId=uuid4()), 403, "payer_mismatch")


@pytest.mark.parametrize("kind", ["Task", "Conversation", "Message", "Schedule", "Resource"])
def test_an_association_is_recorded_as_a_reference(cast: Cast, kind: str) -> None:
    uploaded = succeed(cast.agent.upload(associationKind=kind, associationId="ticket/17 é"), 201)
    (reference,) = succeed(cast.agent.references(uploaded))["references"]
    assert (reference["kind"], reference["referenceId"]) == (kind, "ticket/17 é")
    metadata = succeed(cast.agent.metadata(uploaded))
    assert metadata["owner"]["id"] == str(cast.agent.owner_id)


def test_half_an_association_is_refused(cast: Cast, front: Front) -> None:
    with leaving_nothing(front):
        refuse(cast.agent.upload(associationKind="Task"), 422, "validation_failed")
        refuse(cast.agent.upload(associationId="Task"), 422, "validation_failed")


@pytest.mark.parametrize("difference", [-1, 1, 1000])
def test_content_of_another_length_than_byte_size_is_refused(
    cast: Cast, front: Front, difference: int
) -> None:
    with leaving_nothing(front):
        refuse(cast.agent.upload(b"x" * 2000, byteSize=2000 + difference), 422, "byte_size_mismatch")


@pytest.mark.parametrize("size", [5 * 2**30 + 1, 2**62, 2**63 - 1])
def test_an_announced_size_beyond_the_limit_is_refused_at_once(cast: Cast, front: Front, size: int) -> None:
    with leaving_nothing(front):
        problem = refuse(cast.agent.upload(b"small", byteSize=size), 413, "content_too_large")
    assert problem["maximumBytes"] == 5 * 2**30


def test_a_digest_sent_along_is_compared(cast: Cast, front: Front) -> None:
    wrong = base64.b64encode(hashlib.sha256(b"other").digest()).decode()
    with leaving_nothing(front):
        refuse(
            cast.agent.upload(b"content", headers={"Content-Digest": f"sha-256=:{wrong}:"}),
            422,
            "digest_mismatch",
        )


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\\\temp\\\\report.pdf", "report.pdf"),
        ("ev\u202egpj.exe", "evgpj.exe"),
        ("a%0d%0aSet-Cookie: x", "aSet-Cookie: x"),
        ("cafe\u0301.txt", "café.txt"),
        ("...", "file"),
        ("n" * 300 + ".tar", "n" * 251 + ".tar"),
    ],
)
def test_a_hostile_file_name_is_cleaned_and_comes_back_harmless(cast: Cast, sent: str, kept: str) -> None:
    uploaded = succeed(cast.agent.upload(file_name=sent), 201)
    assert uploaded["metadata"]["fileName"] == kept
    download = cast.agent.content(uploaded)
    assert download.status_code == 200
    disposition = download.headers["Content-Disposition"]
    assert disposition.startswith("attachment; ")
    assert "\r" not in disposition
    assert "\n" not in disposition


def test_the_largest_size_is_a_setting_and_is_counted_to_the_byte(cast: Cast, front: Front) -> None:
    smaller = front.settings.model_copy(update={"max_upload_bytes": 10})
    original: Any = front.app.extensions["services"]
    front.app.extensions["services"] = replace(original, settings=smaller)
    try:
        succeed(cast.agent.upload(b"x" * 10), 201)
        with leaving_nothing(front):
            refuse(cast.agent.upload(b"x" * 11), 413, "content_too_large")
    finally:
        front.app.extensions["services"] = original


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(StorageFull, 507, "storage_full"), (BlobStoreUnavailable, 503, "blob_store_unavailable")],
)
def test_a_store_that_fails_leaves_nothing(
    cast: Cast,
    front: Front,
    monkeypatch: pytest.MonkeyPatch,
    error: type[DomainError],
    status: int,
    code: str,
) -> None:
    """At the beginning, while bytes are written, and when they are made durable."""

    def fail(*_: object, **__: object) -> None:
        raise error

    for broken, verb in ((front.services.blobs, "receive"), (LocalReceiver, "write"), (os, "fdatasync")):
        operation_id = uuid4()
        with monkeypatch.context() as patch, leaving_nothing(front):
            patch.setattr(broken, verb, fail)
            refuse(cast.agent.upload(operationId=operation_id), status, code)
        succeed(cast.agent.upload(operationId=operation_id), 201)


def test_a_disk_that_is_full_is_said_to_be_so(
    cast: Cast, front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fdatasync", fail)
    with leaving_nothing(front):
        refuse(cast.agent.upload(), 507, "storage_full")


def test_a_database_that_is_away_is_asked_again_later(
    cast: Cast, front: Front, tmp_path: Path, valkey_server: EmbeddedValkey
) -> None:
    file = succeed(cast.agent.upload(), 201)
    with open_front("postgresql://nobody@127.0.0.1:1/none", valkey_server.url, tmp_path) as away:
        asker = replace(cast.agent, front=away)
        for answer in (asker.upload(), asker.list(), asker.content(file), asker.delete(file)):
            refuse(answer, 503, "unavailable")
            assert answer.headers["Retry-After"] == "1"


ROOT = Path(web.__file__).parents[1]
MAX_FILES = 8


def test_an_upload_passes_the_files_that_the_readme_names(cast: Cast) -> None:
    text = (ROOT / "README.md").read_text()
    walk = text[
        text.index("3. `web/files/writes.py`") : text.index("\n## ", text.index("3. `web/files/writes.py`"))
    ]
    named = list(dict.fromkeys(re.findall(r"`([\w./-]+\.py)`", walk)))
    assert len(named) <= MAX_FILES
    assert [name for name in named if name not in files_passed(cast)] == []


def files_passed(cast: Cast) -> set[str]:
    """Upload a file, and return the files with functions that were called."""
    passed = set()

    def notice(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            passed.add(frame.f_code.co_filename)

    sys.setprofile(notice)
    try:
        cast.agent.upload(b"content")
    finally:
        sys.setprofile(None)
    return {path.removeprefix(f"{ROOT}/") for path in passed}


CONTENT = os.urandom(3_000_000) + b"\r\n--"
RECEIVED = {"name": 'naïve "q" 😀.bin', "sha256": hashlib.sha256(CONTENT).hexdigest()}
SMALL_BODY_BYTES = 500_000


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with gunicorn() as port:
        yield f"http://127.0.0.1:{port}/upload"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / 'naïve "q" 😀.bin'
    path.write_bytes(CONTENT)
    return path


def curl(*arguments: str) -> Any:
    done = subprocess.run(["curl", "-sS", *arguments], capture_output=True, check=True, timeout=60)
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "options", [[], ["-H", "Transfer-Encoding: chunked"], ["-H", "Expect:"], ["-H", "Expect: 100-continue"]]
)
def test_curl_uploads(address: str, path: Path, options: list[str]) -> None:
    # Its own form syntax needs the name's quotes escaped; what it sends is up to its version.
    quoted = str(path).replace('"', '\\"')
    assert curl(*options, "-F", f'file=@"{quoted}";type=text/x-test', f"{address}?{len(CONTENT)}") == RECEIVED


def test_requests_uploads(address: str, path: Path) -> None:
    with path.open("rb") as file:
        response = requests.post(address, files={"file": (path.name, file, "text/plain")}, timeout=60)
    assert response.json() == RECEIVED


@pytest.mark.parametrize("size", [100, SMALL_BODY_BYTES, 30_000_000])
def test_a_refusal_reaches_a_client_that_is_still_sending(address: str, size: int) -> None:
    files = {"file": ("a", b"x" * size, "text/plain")}
    with requests.Session() as session:
        for _ in range(2):
            response = session.post(f"{address}?10", files=files, timeout=60)
            assert (response.status_code, response.json()) == (422, {"code": "byte_size_mismatch"})
            assert (response.headers["Connection"] == "close") == (size > SMALL_BODY_BYTES)
