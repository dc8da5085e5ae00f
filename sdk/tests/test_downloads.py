"""Downloads: they resume, never mix versions, and verify the digest."""

from __future__ import annotations

import io
import os
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

import pytest

from quartermaster import errors
from sdk.tests.forms import Connect
from sdk.tests.scripted_service import Answer, Request, Script, ScriptedService, in_turn, problem

pytestmark = pytest.mark.usefixtures("short_pauses")
CONTENT = os.urandom(2 << 20)
OTHER = os.urandom(1 << 20)
FILE = uuid4()


def tag(content: bytes) -> str:
    return f'"{sha256(content).hexdigest()}"'


def serve(content: bytes, *, cut_at: int | None = None) -> Script:
    """Return a handler that serves content with ranges, and cuts each response after some bytes."""

    def answer(request: Request) -> Answer:
        headers = {"ETag": tag(content)}
        if request.headers.get("if-range") != tag(content):
            return Answer(200, content, headers, cut_at)
        start = int(request.headers["range"].removeprefix("bytes=").removesuffix("-"))
        headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        return Answer(206, content[start:], headers, cut_at)

    return answer


def test_a_download_goes_on_where_it_broke_off_however_often(
    service: ScriptedService, connect: Connect, tmp_path: Path
) -> None:
    service.script = serve(CONTENT, cut_at=300_000)
    seen: list[int] = []
    # One retry, but seven requests: attempts that make progress do not count.
    client = connect(**service.key, max_retries=1)
    client.files.download(FILE, tmp_path / "a", progress=lambda received, _: seen.append(received))
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert [at.name for at in tmp_path.iterdir()] == ["a"]
    assert seen == sorted(seen)
    assert len(service.requests) == 7
    assert {at.headers["accept-encoding"] for at in service.requests} == {"identity"}


def test_a_download_of_what_changed_meanwhile_begins_anew(service: ScriptedService, connect: Connect) -> None:
    first, second = serve(CONTENT, cut_at=300_000), serve(OTHER)
    service.script = lambda request: first(request) if len(service.requests) == 1 else second(request)
    # A restart must truncate to where the download began, and not to the beginning of the file.
    held = io.BytesIO(b"before ")
    held.seek(7)
    connect(**service.key).files.download(FILE, held)
    assert held.getvalue() == b"before " + OTHER


def test_damaged_content_is_refused_and_leaves_nothing(
    service: ScriptedService, connect: Connect, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("before")
    service.script = in_turn(Answer(200, OTHER, {"ETag": tag(CONTENT)}))
    with pytest.raises(errors.DigestMismatch):
        connect(**service.key).files.download(FILE, tmp_path / "a")
    assert (tmp_path / "a").read_text() == "before"
    assert [at.name for at in tmp_path.iterdir()] == ["a"]


def test_a_download_that_never_goes_on_fails(
    service: ScriptedService, connect: Connect, tmp_path: Path
) -> None:
    first = serve(CONTENT, cut_at=300_000)
    service.script = lambda request: (
        first(request) if len(service.requests) == 1 else Answer(206, b"x", {}, 0)
    )
    with pytest.raises(errors.ConnectionFailed):
        connect(**service.key, max_retries=2).files.download(FILE, tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_deleted_meanwhile_is_gone(
    service: ScriptedService, connect: Connect, tmp_path: Path
) -> None:
    first = serve(CONTENT, cut_at=300_000)
    service.script = lambda request: (
        first(request) if len(service.requests) == 1 else problem(410, "file_deleted")
    )
    with pytest.raises(errors.Gone):
        connect(**service.key).files.download(FILE, tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
