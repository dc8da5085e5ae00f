"""Downloads: headers, ranges, preconditions, and content that is interrupted or has changed."""

import base64
import hashlib
import http.client
import os
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from uuid import UUID
from wsgiref.types import WSGIEnvironment

import pytest
import requests
from gunicorn.http.wsgi import FileWrapper  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.test import EnvironBuilder, run_wsgi_app

from shared.files.blobs.base import BlobDamaged
from shared.files.blobs.chunks import CHECKED_CHUNK_BYTES
from shared.files.errors import VersionMismatch
from shared.files.resources import Version
from tests.support.files.serving import ask, gunicorn
from web.files.content_response import content_response
from web.files.presentation import Presentation
from web.files.ranges import RangeNotSatisfiable, Selection, select_bytes

CONTENT = os.urandom(300_000)
ROTTEN_AT = 290_000
SHA256 = hashlib.sha256(CONTENT)
TAG = f'"{SHA256.hexdigest()}"'


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    path = tmp_path_factory.mktemp("content") / "content.bin"
    path.write_bytes(CONTENT)
    with gunicorn(CONTENT_FILE=str(path), ROTTEN_AT=str(ROTTEN_AT)) as port:
        yield port


SOURCES = pytest.mark.parametrize("path", ["/local", "/remote"])


@SOURCES
def test_the_whole_content_arrives_with_headers_that_describe_and_protect_it(port: int, path: str) -> None:
    response = ask(port, path)
    assert response.status == 200
    assert response.body == CONTENT
    headers = response.headers
    assert headers["ETag"] == TAG
    assert headers["Content-Length"] == str(len(CONTENT))
    assert headers["Accept-Ranges"] == "bytes"
    assert headers["Repr-Digest"] == f"sha-256=:{base64.b64encode(SHA256.digest()).decode()}:"
    assert headers["Content-Type"] == "application/octet-stream"
    assert (
        headers["Content-Disposition"] == "attachment; filename=\"content.bin\"; filename*=UTF-8''content.bin"
    )
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"] == "sandbox; default-src 'none'; frame-ancestors 'none'"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "private, no-cache"
    assert headers["X-Robots-Tag"] == "noindex"
    assert headers["Cross-Origin-Resource-Policy"] == "same-site"


@SOURCES
@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [("bytes=0-0", 0, 1), ("bytes=100000-199999", 100_000, 200_000), ("bytes=-10", 299_990, 300_000)],
)
def test_a_range_is_sent_alone(port: int, path: str, asked: str, start: int, stop: int) -> None:
    response = ask(port, path, {"Range": asked})
    assert response.status == 206
    assert response.headers["Content-Range"] == f"bytes {start}-{stop - 1}/300000"
    assert response.headers["Content-Length"] == str(stop - start)
    assert response.body == CONTENT[start:stop]


@SOURCES
def test_several_ranges_are_sent_as_parts(port: int, path: str) -> None:
    response = ask(port, path, {"Range": "bytes=1000-1999,0-9,-5"})
    assert response.status == 206
    boundary = re.fullmatch(r"multipart/byteranges; boundary=(\w+)", response.headers["Content-Type"])
    assert boundary
    body = response.body
    assert len(body) == int(response.headers["Content-Length"])
    parts = body.split(f"\r\n--{boundary[1]}".encode())
    assert parts[0] == b""
    assert parts[-1] == b"--\r\n"
    expected = {"1000-1999": CONTENT[1000:2000], "0-9": CONTENT[:10], "299995-299999": CONTENT[-5:]}
    assert parts[1:-1] == [
        f"\r\nContent-Type: application/octet-stream\r\nContent-Range: bytes {at}/300000\r\n\r\n".encode()
        + content
        for at, content in expected.items()
    ]


@SOURCES
def test_head_announces_the_whole_content_and_sends_nothing(port: int, path: str) -> None:
    response = ask(port, path, {"Range": "bytes=0-9"}, method="HEAD")
    assert response.status == 200
    assert response.headers["Content-Length"] == "300000"
    assert response.headers["ETag"] == TAG
    assert response.body == b""


def test_an_answer_that_comes_to_rotten_bytes_breaks_off_before_them(port: int) -> None:
    with pytest.raises(http.client.IncompleteRead) as broken:
        ask(port, "/checked")
    assert broken.value.partial == CONTENT[:CHECKED_CHUNK_BYTES]
    sound = ask(port, "/checked", {"Range": "bytes=5-9"})
    assert (sound.status, sound.body) == (206, CONTENT[5:10])
    refused = ask(port, "/checked", {"Range": f"bytes={ROTTEN_AT + 1}-"})
    assert (refused.status, b"blob_damaged" in refused.body) == (503, True)
    with pytest.raises(http.client.IncompleteRead):
        ask(port, "/checked", {"Range": f"bytes=0-9,{ROTTEN_AT}-{ROTTEN_AT + 9}"})


@SOURCES
def test_content_the_client_has_is_not_sent_again(port: int, path: str) -> None:
    response = ask(port, path, {"If-None-Match": TAG})
    assert response.status == 304
    assert response.body == b""
    assert response.headers["ETag"] == TAG
    assert response.headers["Cache-Control"] == "private, no-cache"
    assert "Content-Type" not in response.headers


@SOURCES
def test_an_interrupted_download_resumes_only_on_the_same_content(port: int, path: str) -> None:
    assert ask(port, path, {"Range": "bytes=9-", "If-Range": TAG}).status == 206
    assert ask(port, path, {"Range": "bytes=9-", "If-Range": '"other"'}).body == CONTENT


@SOURCES
def test_a_range_beyond_the_end_and_another_content_are_refused(port: int, path: str) -> None:
    assert ask(port, path, {"Range": "bytes=300000-"}).status == 416
    assert ask(port, path, {"If-Match": '"other"'}).status == 412


@SOURCES
def test_the_connection_serves_on_after_every_kind_of_answer(port: int, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for headers in ({}, {"Range": "bytes=5-9"}, {"Range": "bytes=1-2,5-9"}, {"If-None-Match": TAG}, {}):
        connection.request("GET", path, headers=headers)
        socket_before = connection.sock
        connection.getresponse().read()
        assert connection.sock is socket_before is not None
    connection.close()


def test_common_clients_read_the_content(port: int, tmp_path: Path) -> None:
    with requests.get(
        f"http://127.0.0.1:{port}/local", headers={"Range": "bytes=7-"}, timeout=60
    ) as response:
        assert response.content == CONTENT[7:]
    target = tmp_path / "content"
    target.write_bytes(CONTENT[:1234])
    subprocess.run(
        ["curl", "-sS", "-C", "-", "-o", str(target), f"http://127.0.0.1:{port}/local"],
        check=True,
        timeout=60,
    )
    assert target.read_bytes() == CONTENT


class OpenFile:
    """An open local blob that records whether it was closed."""

    def __init__(self, path: Path, fixed_path: str | None = None) -> None:
        self.file: FileIO | None = FileIO(path)
        self.fixed_path = fixed_path

    @property
    def is_closed(self) -> bool:
        return self.file is not None and self.file.closed

    def chunks(self, start: int, stop: int) -> Iterator[bytes]:
        assert self.file is not None
        yield os.pread(self.file.fileno(), stop - start, start)

    def close(self) -> None:
        assert self.file is not None
        self.file.close()

    def __enter__(self) -> "OpenFile":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def version(media_type: str = "text/plain", byte_size: int = 1000) -> Version:
    return Version(
        id=UUID(int=1),
        file_id=UUID(int=2),
        revision=1,
        file_name="naïve.txt",
        media_type=media_type,
        byte_size=byte_size,
        content_sha256=hashlib.sha256(CONTENT[:byte_size]).digest(),
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


@pytest.fixture
def blob(tmp_path: Path) -> OpenFile:
    (tmp_path / "blob").write_bytes(CONTENT[:1000])
    return OpenFile(tmp_path / "blob", fixed_path="ab/blob")


def environ(method: str = "GET", **headers: str) -> WSGIEnvironment:
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return EnvironBuilder(method=method, headers=named).get_environ()


def test_gunicorn_sends_the_file_from_the_right_offset(blob: OpenFile) -> None:
    asked = environ(Range="bytes=100-199") | {"wsgi.file_wrapper": FileWrapper}
    response = content_response(asked, version(), blob, presentation=Presentation.SHARED)
    sent = response(asked, lambda *_: lambda _: None)
    assert isinstance(sent, FileWrapper)
    assert os.lseek(sent.filelike.fileno(), 0, os.SEEK_CUR) == 100
    assert response.content_length == 100
    assert b"".join(sent) == CONTENT[100:200]
    sent.close()
    assert blob.is_closed


@pytest.mark.parametrize("asked", ["", "bytes=0-9", "bytes=500-", "bytes=0-9,20-29"])
def test_a_server_without_sendfile_sends_the_same(blob: OpenFile, asked: str) -> None:
    request = environ(Range=asked)
    response = content_response(request, version(), blob, presentation=Presentation.SHARED)
    chunks, status, headers = run_wsgi_app(response, request)
    body = b"".join(chunks)
    assert len(body) == int(headers["Content-Length"])
    assert status == ("206 PARTIAL CONTENT" if asked else "200 OK")
    chunks.close()  # type: ignore[attr-defined]
    assert blob.is_closed


@pytest.mark.parametrize(
    ("declared", "sent"),
    [
        ("text/plain; charset=utf-8", "text/plain; charset=utf-8"),
        ("application/pdf", "application/pdf"),
        ("image/png", "image/png"),
        ("text/html", "application/octet-stream"),
        ("Text/HTML; charset=utf-8", "application/octet-stream"),
        ("image/svg+xml", "application/octet-stream"),
        ("application/xhtml+xml", "application/octet-stream"),
        ("text/xml", "application/octet-stream"),
        ("text/javascript", "application/octet-stream"),
        ("application/x-javascript", "application/octet-stream"),
    ],
)
def test_types_that_a_browser_would_run_are_not_declared(blob: OpenFile, declared: str, sent: str) -> None:
    with blob:
        response = content_response(environ(), version(declared), blob, presentation=Presentation.SHARED)
    assert response.headers["Content-Type"] == sent


@pytest.mark.parametrize("condition", [{}, {"method": "HEAD"}, {"Range": "bytes=0-9"}])
def test_front_proxy_gets_the_path_of_the_file(blob: OpenFile, condition: dict[str, str]) -> None:
    response = content_response(
        environ(**condition), version(), blob, presentation=Presentation.SHARED, proxy_prefix="/internal/"
    )
    assert response.headers["X-Accel-Redirect"] == "/internal/ab/blob"
    assert response.status_code == 200
    assert response.get_data() == b""
    assert blob.is_closed


@pytest.mark.parametrize("condition", [{"method": "HEAD"}, {"If_None_Match": "*"}])
def test_an_answer_without_content_closes_the_file_at_once(blob: OpenFile, condition: dict[str, str]) -> None:
    content_response(environ(**condition), version(), blob, presentation=Presentation.SHARED)
    assert blob.is_closed


def test_a_refusal_closes_the_file(blob: OpenFile) -> None:
    with pytest.raises(RangeNotSatisfiable):
        content_response(environ(Range="bytes=5000-"), version(), blob, presentation=Presentation.SHARED)
    assert blob.is_closed


@pytest.mark.parametrize("byte_size", [999, 1001])
def test_a_file_of_another_length_than_recorded_is_not_sent(blob: OpenFile, byte_size: int) -> None:
    with pytest.raises(BlobDamaged):
        content_response(environ(), version(byte_size=byte_size), blob, presentation=Presentation.SHARED)
    assert blob.is_closed


def test_an_empty_content_is_sent_as_such(tmp_path: Path) -> None:
    (tmp_path / "blob").touch()
    request = environ(Range="bytes=0-")
    blob = OpenFile(tmp_path / "blob")
    response = content_response(request, version(byte_size=0), blob, presentation=Presentation.SHARED)
    chunks, status, headers = run_wsgi_app(response, request)
    assert (b"".join(chunks), status, headers["Content-Length"]) == (b"", "200 OK", "0")
    assert blob.is_closed


SIMPLE_TAG = '"abc"'
Ranges = list[tuple[int, int]]


def select(method: str = "GET", *, size: int = 100, **headers: str) -> Selection | Ranges:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    selected = select_bytes(method, named, entity_tag=SIMPLE_TAG, byte_size=size)
    return selected if isinstance(selected, Selection) else [(at.start, at.stop) for at in selected]


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ("bytes=0-0", [(0, 1)]),
        ("bytes=10-19", [(10, 20)]),
        ("bytes=90-", [(90, 100)]),
        ("bytes=-5", [(95, 100)]),
        ("bytes=-500", [(0, 100)]),
        ("bytes=50-5000", [(50, 100)]),
        ("Bytes= 1-2 , ,4-5", [(1, 3), (4, 6)]),
        ("bytes=90-,0-9", [(90, 100), (0, 10)]),
        ("bytes=0-9,10-19", [(0, 20)]),
        ("bytes=50-60,0-9,5-20", [(0, 21), (50, 61)]),
        ("bytes=0-,-100,0-99", [(0, 100)]),
        ("bytes=0-9,100-", [(0, 10)]),
        ("bytes=0-9,-0", [(0, 10)]),
        ("bytes=5-" + "9" * 20, [(5, 100)]),
        ("bytes=5-" + "9" * 8000, [(5, 100)]),
        ("bytes=-" + "9" * 8000, [(0, 100)]),
        ("bytes=" + "0" * 8000 + "5-9", [(5, 10)]),
    ],
)
def test_ranges_are_read_and_joined_where_they_touch(asked: str, sent: Ranges) -> None:
    assert select(Range=asked) == sent


@pytest.mark.parametrize(
    "asked",
    [
        "",
        "bytes",
        "bytes=",
        "bytes=,",
        "bytes=-",
        "bytes=a-b",
        "bytes=5-2",
        "bytes=1-2-3",
        "bytes=+1-2",
        "bytes=1 -2",
        "bytes=0-1,x",
        "bytes=0x0-0x5",
        "bytes=\u0660-\u0661",
        "items=0-1",
        "bytes=" + ",".join(f"{n * 3}-{n * 3}" for n in range(17)),
    ],
)
def test_a_malformed_or_excessive_range_is_ignored(asked: str) -> None:
    assert select(Range=asked) is Selection.WHOLE


@pytest.mark.parametrize(
    "asked", ["bytes=100-", "bytes=100-200,300-", "bytes=-0", "bytes=" + "9" * 5000 + "-"]
)
def test_a_range_beyond_the_content_is_refused_with_its_size(asked: str) -> None:
    with pytest.raises(RangeNotSatisfiable) as refusal:
        select(Range=asked)
    assert refusal.value.data == {"byteSize": 100}


@pytest.mark.parametrize("asked", ["bytes=0-", "bytes=-1", "bytes=5-9"])
def test_of_an_empty_content_everything_is_sent(asked: str) -> None:
    assert select(size=0, Range=asked) is Selection.WHOLE


def test_head_knows_no_ranges() -> None:
    assert select("HEAD", Range="bytes=0-1") is Selection.WHOLE
    assert select("HEAD", Range="bytes=500-") is Selection.WHOLE


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (SIMPLE_TAG, True),
        (f"W/{SIMPLE_TAG}", False),
        ('"other"', False),
        ("Sat, 21 Nov 2026 10:00:00 GMT", False),
        ("abc", False),
        ("", False),
    ],
)
def test_if_range_holds_for_the_same_strong_tag_only(condition: str, *, holds: bool) -> None:
    assert select(Range="bytes=0-1", If_Range=condition) == ([(0, 2)] if holds else Selection.WHOLE)


@pytest.mark.parametrize(
    ("condition", "not_modified"),
    [
        (SIMPLE_TAG, True),
        (f"W/{SIMPLE_TAG}", True),
        (f'"x", {SIMPLE_TAG}', True),
        ("*", True),
        ('"x"', False),
        ("abc", False),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_if_none_match_compares_weakly(method: str, condition: str, *, not_modified: bool) -> None:
    selected = select(method, If_None_Match=condition, Range="bytes=0-1")
    assert (selected is Selection.NOT_MODIFIED) == not_modified


@pytest.mark.parametrize("condition", [SIMPLE_TAG, "*", f'"x",{SIMPLE_TAG}'])
def test_if_match_lets_the_same_content_pass(condition: str) -> None:
    assert select(If_Match=condition) is Selection.WHOLE


@pytest.mark.parametrize("condition", [f"W/{SIMPLE_TAG}", '"x"', ""])
def test_if_match_refuses_other_content_before_anything_else(condition: str) -> None:
    with pytest.raises(VersionMismatch):
        select(If_Match=condition, If_None_Match=SIMPLE_TAG, Range="bytes=500-")


@given(
    st.one_of(st.text(max_size=40), st.from_regex(r"bytes=([0-9]{0,3}-[0-9]{0,3},? ?){1,6}", fullmatch=True))
)
def test_any_ranges_send_no_byte_twice_and_none_outside(asked: str) -> None:
    try:
        selected = select_bytes("GET", {"Range": asked}, entity_tag=SIMPLE_TAG, byte_size=100)
    except RangeNotSatisfiable:
        return
    if not isinstance(selected, Selection):
        positions = [position for at in selected for position in range(at.start, at.stop)]
        assert len(positions) == len(set(positions)) > 0
        assert set(positions) <= set(range(100))
