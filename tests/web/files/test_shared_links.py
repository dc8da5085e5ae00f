"""Links of read grants as their recipients open them, in a browser too."""

import json
import shutil
import struct
import subprocess
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest
from werkzeug.serving import make_server
from werkzeug.test import TestResponse

from deploy.embedded.ports import find_free_port
from deploy.embedded.valkey import EmbeddedValkey
from tests.support.files.file_requests import refuse, succeed
from tests.support.web.web_process import Front, open_front
from tests.web.files.conftest import Cast, make_cast

READABLE = ("Accept-Ranges", "Content-Disposition", "Content-Length", "Content-Range", "ETag", "Repr-Digest")
SHOWN = (
    "image/png",
    "image/jpeg",
    "image/webp",
    "audio/mpeg",
    "video/mp4",
    "application/pdf",
    "text/plain; charset=utf-8",
)
NEVER_SHOWN = (
    "text/html",
    "TEXT/HTML; charset=utf-8",
    "image/svg+xml",
    "IMAGE/SVG+XML",
    "image/svg",
    "application/xhtml+xml",
    "text/xml",
    "text/javascript",
    "text/css",
    "text/markdown",
    "application/json",
    "application/zip",
    "application/octet-stream",
    "multipart/x-mixed-replace",
    "imagery/png",
)


def shared(cast: Cast, media_type: str = "image/png") -> tuple[Any, str]:
    file = succeed(cast.agent.upload(b"0123456789", file_name="shown", media_type=media_type), 201)
    return file, succeed(cast.agent.grant(file), 201)["url"]


def require_open_to_any_page(answer: TestResponse) -> None:
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert "Access-Control-Allow-Credentials" not in answer.headers
    assert answer.headers["Cross-Origin-Resource-Policy"] == "cross-origin"
    exposed = {name.strip() for name in answer.headers["Access-Control-Expose-Headers"].split(",")}
    assert set(READABLE) <= exposed


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({}, 200),
        ({"Range": "bytes=1-2"}, 206),
        ({"Range": "bytes=0-1,4-5"}, 206),
        ({"Range": "bytes=99-"}, 416),
    ],
)
def test_a_link_is_open_to_any_page(cast: Cast, method: str, sent: dict[str, str], status: int) -> None:
    _, link = shared(cast)
    answer = cast.anonymous.follow(link, method=method, headers={"Origin": "https://page.example", **sent})
    assert answer.status_code == (status if method == "GET" else 200)
    require_open_to_any_page(answer)


def test_conditional_request_of_a_page_gets_304(cast: Cast) -> None:
    _, link = shared(cast)
    entity_tag = cast.anonymous.follow(link).headers["ETag"]
    answer = cast.anonymous.follow(link, headers={"If-None-Match": entity_tag})
    assert answer.status_code == 304
    require_open_to_any_page(answer)


def test_a_page_may_read_why_a_link_does_not_work(cast: Cast) -> None:
    file, link = shared(cast)
    succeed(cast.admin.delete(file))
    answer = cast.anonymous.follow(link)
    refuse(answer, 410, "grant_expired")
    require_open_to_any_page(answer)


def test_preflight_lists_the_allowed_headers(cast: Cast) -> None:
    _, link = shared(cast)
    asked = {
        "Origin": "https://page.example",
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Headers": "range,if-none-match",
    }
    answer = cast.anonymous.follow(link, method="OPTIONS", headers=asked)
    assert (answer.status_code, answer.data) == (204, b"")
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert answer.headers["Access-Control-Allow-Methods"] == "GET, HEAD"
    allowed = {name.strip().lower() for name in answer.headers["Access-Control-Allow-Headers"].split(",")}
    assert {"range", "if-range", "if-none-match"} <= allowed
    assert "authorization" not in allowed


def test_without_a_grant_no_page_of_another_origin_gets_anything(cast: Cast) -> None:
    file, _ = shared(cast)
    answer = cast.agent.content(file, headers={"Origin": "https://page.example"})
    asked = cast.agent.content(file, method="OPTIONS", headers={"Origin": "https://page.example"})
    asked_by_nobody = cast.anonymous.content(file, method="OPTIONS")
    for each in (answer, asked, asked_by_nobody):
        assert [name for name, _ in each.headers if name.startswith("Access-Control-")] == []
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-site"
    assert answer.headers["Content-Disposition"].startswith("attachment")
    refuse(cast.agent.content(file, disposition="inline"), 422, "validation_failed")
    assert asked_by_nobody.status_code == 204  # a browser sends no credentials before it knows that it may


@pytest.mark.parametrize("media_type", SHOWN)
def test_passive_content_is_shown_inline_on_request(cast: Cast, media_type: str) -> None:
    _, link = shared(cast, media_type)
    answer = cast.anonymous.follow(f"{link}&disposition=inline")
    assert (answer.status_code, answer.data) == (200, b"0123456789")
    assert answer.headers["Content-Type"] == media_type
    assert answer.headers["Content-Disposition"].startswith('inline; filename="shown"')
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    policy = {part.strip() for part in answer.headers["Content-Security-Policy"].split(";")}
    assert {"sandbox", "default-src 'none'", "frame-ancestors *"} <= policy
    for plain in (link, f"{link}&disposition=attachment"):
        kept = cast.anonymous.follow(plain)
        assert kept.headers["Content-Disposition"].startswith("attachment")
        assert "frame-ancestors 'none'" in kept.headers["Content-Security-Policy"]


@pytest.mark.parametrize("media_type", NEVER_SHOWN)
def test_everything_else_stays_an_attachment(cast: Cast, media_type: str) -> None:
    _, link = shared(cast, media_type)
    answer = cast.anonymous.follow(f"{link}&disposition=inline")
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]


def test_another_disposition_is_refused(cast: Cast) -> None:
    _, link = shared(cast)
    refuse(cast.anonymous.follow(f"{link}&disposition=form-data"), 422, "validation_failed")


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE_SECONDS = 60
HTML = b"<script>fetch('PAGE/ran-html', {mode: 'no-cors'})</script>"
SVG = (
    b"<svg xmlns='http://www.w3.org/2000/svg'><script>fetch('PAGE/ran-svg', {mode: 'no-cors'})</script></svg>"
)

PAGE = """<!doctype html><body><script>
const links = LINKS;
const loads = (tag, source) => new Promise(done => {
  const made = document.createElement(tag);
  made.onload = () => done(made.naturalWidth || 'loaded');
  made.onerror = () => done('failed');
  made.src = source;
  document.body.append(made);
  setTimeout(() => done('waited'), 5000);
});
const read = async (link, headers) => {
  try {
    const answer = await fetch(link, {headers});
    return [answer.status, await answer.text(), answer.headers.get('Content-Range'), !!answer.headers.get('ETag'),
      !!answer.headers.get('Repr-Digest')];
  } catch (error) { return ['refused']; }
};
(async () => {
  const found = {
    image: await loads('img', links.image + '&disposition=inline'),
    whole: await read(links.text, {}),
    part: await read(links.text, {Range: 'bytes=1-3', 'If-None-Match': '"another"'}),
    gone: await read(links.text + 'x', {}),
    direct: await read(links.direct, {}),
    html: await loads('iframe', links.html + '&disposition=inline'),
    svg: await loads('iframe', links.svg + '&disposition=inline'),
    drawn: await loads('img', links.svg + '&disposition=inline'),
    scripted: await loads('script', links.html + '&disposition=inline'),
  };
  await fetch('/result', {method: 'POST', body: JSON.stringify(found)});
})();
</script>"""


@pytest.fixture(scope="module")
def front(
    database_url: str, valkey_server: EmbeddedValkey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Front]:
    """A web process that listens on a real port."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    port = find_free_port()
    with open_front(
        database_url,
        valkey_server.url,
        tmp_path_factory.mktemp("blobs"),
        base_url=f"http://127.0.0.1:{port}",
    ) as front:
        server = make_server("127.0.0.1", port, front.app, threaded=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield front
        server.shutdown()


@pytest.fixture(scope="module")
def cast(front: Front) -> Cast:
    return make_cast(front)


class Page:
    """A page of another site, its result, and the other requests to its server."""

    def __init__(self) -> None:
        self.document = ""
        self.results: Queue[Any] = Queue()
        self.asked: list[str] = []


@contextmanager
def serving(page: Page) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page.asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page.document.encode())

        def do_POST(self) -> None:
            page.results.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        # Another site than the front's address, and not only another port.
        yield f"http://localhost:{server.server_port}"
        server.shutdown()


@pytest.mark.browser
def test_a_page_of_another_site_shows_and_reads_links_and_runs_nothing(
    cast: Cast, front: Front, tmp_path: Path
) -> None:
    page = Page()
    with serving(page) as address:
        contents = {
            "image": (png(), "image/png"),
            "text": (b"0123456789", "text/plain"),
            "html": (HTML.replace(b"PAGE", address.encode()), "text/html"),
            "svg": (SVG.replace(b"PAGE", address.encode()), "image/svg+xml"),
        }
        files = {
            name: succeed(cast.agent.upload(content, media_type=media_type), 201)
            for name, (content, media_type) in contents.items()
        }
        links = {name: succeed(cast.agent.grant(file), 201)["url"] for name, file in files.items()}
        links["direct"] = files["text"]["url"]
        page.document = PAGE.replace("LINKS", json.dumps(links))
        found = visit(page, address, tmp_path)
    assert found["image"] == 1
    assert found["whole"] == [200, "0123456789", None, True, True]
    assert found["part"] == [206, "123", "bytes 1-3/10", True, True]
    assert found["gone"][0] == 404
    assert found["direct"] == ["refused"]
    assert (found["drawn"], found["scripted"]) == ("failed", "failed")
    assert [path for path in page.asked if path.startswith("/ran")] == []


def visit(page: Page, address: str, directory: Path) -> Any:
    """Open the page and return what it reports."""
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    browser = subprocess.Popen(
        [str(CHROMIUM), *options, f"--user-data-dir={directory}", f"{address}/"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        return page.results.get(timeout=PATIENCE_SECONDS)
    except Empty:
        pytest.skip("the browser that is installed does not open pages here")
    finally:
        browser.kill()
        browser.wait()


def png() -> bytes:
    """Draw one red point."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    points = zlib.compress(b"\0\xff\0\0")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", points) + chunk(b"IEND", b"")
