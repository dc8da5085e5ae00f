"""The front proxy's configuration, in a real nginx before a stand-in for the service."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.ports import find_free_port

CONFIGURATION = Path(__file__).resolve().parents[2] / "deploy" / "nginx" / "quartermaster.conf"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
CONTENT = b"exactly these bytes"
PROTECTED = {
    "ETag": '"digest"',
    "Repr-Digest": "sha-256=:x:",
    "Content-Security-Policy": "sandbox",
    "X-Content-Type-Options": "nosniff",
    "Content-Disposition": "attachment",
    "Cache-Control": "private, no-store",
    "Referrer-Policy": "no-referrer",
    "X-Request-Id": "request",
}

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


class Service(http.server.BaseHTTPRequestHandler):
    """Answers like the service where nginx shall send the content."""

    def do_GET(self) -> None:
        self.send_response(200)
        if self.path.startswith("/files/"):
            for name, value in PROTECTED.items():
                self.send_header(name, value)
            self.send_header("X-Accel-Redirect", "/_blobs/objects/ab/blob")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[int]:
    """The port of a running proxy; its files are below `tmp_path`."""
    service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    port = find_free_port()
    blob = tmp_path / "blobs" / "objects" / "ab" / "blob"
    blob.parent.mkdir(parents=True)
    blob.write_bytes(CONTENT)
    text = CONFIGURATION.read_text()
    for stated, actual in (
        ("server 127.0.0.1:8080;", f"server 127.0.0.1:{service.server_port};"),
        ("listen 80;", f"listen 127.0.0.1:{port};"),
        ("/var/log/nginx/", f"{tmp_path}/"),
        ("/var/lib/quartermaster/blobs/", f"{tmp_path}/blobs/"),
    ):
        assert stated in text
        text = text.replace(stated, actual)
    (tmp_path / "quartermaster.conf").write_text(text)
    (tmp_path / "nginx.conf").write_text(
        f"{'user root;' if os.geteuid() == 0 else ''} daemon off; pid {tmp_path}/pid;"
        f" error_log stderr crit; events {{}} http {{ client_body_temp_path {tmp_path}/body;"
        f" proxy_temp_path {tmp_path}/proxy; fastcgi_temp_path {tmp_path}/f; uwsgi_temp_path {tmp_path}/u;"
        f" scgi_temp_path {tmp_path}/s; include {tmp_path}/quartermaster.conf; }}"
    )
    nginx = subprocess.Popen([str(NGINX), "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")])
    try:
        wait_for(port)
        yield port
    finally:
        nginx.terminate()
        nginx.wait(10)
        service.shutdown()
        service.server_close()


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError("nginx does not listen")


def get(
    port: int, path: str, headers: dict[str, str] | None = None
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        return answer, answer.read()


def test_content_is_sent_by_the_proxy_with_the_services_headers(proxy: int) -> None:
    answer, content = get(proxy, "/files/1/content")
    assert (answer.status, content) == (200, CONTENT)
    assert {name: answer.headers[name] for name in PROTECTED} == PROTECTED
    assert len(answer.headers.get_all("ETag") or []) == 1


def test_ranges_are_served_by_the_proxy(proxy: int) -> None:
    answer, content = get(proxy, "/files/1/content", {"Range": "bytes=8-12"})
    assert (answer.status, content) == (206, b"these")


def test_content_cannot_be_asked_for_directly(proxy: int) -> None:
    answer, _ = get(proxy, "/_blobs/objects/ab/blob")
    assert answer.status == 404


def test_no_log_holds_a_query(proxy: int, tmp_path: Path) -> None:
    get(proxy, "/files/1/content?grant=svg_secret", {"Referer": "http://elsewhere/?grant=svg_secret"})
    deadline = time.monotonic() + 10
    while not (log := (tmp_path / "quartermaster.log").read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert '"path":"/files/1/content"' in log
    assert "svg_secret" not in log + (tmp_path / "quartermaster.error.log").read_text()
