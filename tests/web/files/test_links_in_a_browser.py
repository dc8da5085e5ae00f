"""Shared links in a page of another site, in a real browser: what is shown, readable and never executed."""

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

from deploy.embedded.ports import find_free_port
from deploy.embedded.valkey import EmbeddedValkey
from tests.support.web.web_process import Front, open_front
from tests.web.files.asking import succeed
from tests.web.files.conftest import Cast, make_cast

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
