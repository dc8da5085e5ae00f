"""The reverse proxy's configuration, in a real nginx in front of a stand-in for the service."""

import contextlib
import http.client
import http.server
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pytest

from deploy.embedded.ports import find_free_port
from tests.support.processes.stack import wait_until
from tests.support.servers.nginx import CONFIGURATION, NGINX, SHIPPED, running_nginx
from tests.web.server.trivial_front import trivial_front
from web.server.listeners import STOPPING_SECONDS
from web.server.server_settings import ServerSettings

CONTENT = b"exactly these bytes"
PROTECTED = {
    "ETag": '"digest"',
    "Repr-Digest": "sha-256=:x:",
    "Content-Security-Policy": "sandbox",
    "X-Content-Type-Options": "nosniff",
    "Content-Disposition": "attachment",
    "Cache-Control": "private, no-store",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "cross-origin",
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": "ETag",
    "X-Request-Id": "request",
}
KEEPALIVE_TIMER = "02"
"""For an idle connection."""

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


class Service(http.server.BaseHTTPRequestHandler):
    """A stand-in that responds as the service does if nginx is to send the content, and records its requests."""

    reached: ClassVar[list[tuple[str, str, dict[str, str]]]] = []

    def do_GET(self) -> None:
        self.reached.append((self.command, self.path, {name.lower(): v for name, v in self.headers.items()}))
        self.send_response(200)
        if self.path.startswith("/files/"):
            for name, value in PROTECTED.items():
                self.send_header(name, value)
            self.send_header("X-Accel-Redirect", "/_blobs/objects/ab/blob")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        self.reached.append((self.command, self.path, {name.lower(): v for name, v in self.headers.items()}))
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[int]:
    """Return the port of a running nginx in front of the stand-in; its files are below `tmp_path`."""
    service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    blob = tmp_path / "blobs" / "objects" / "ab" / "blob"
    blob.parent.mkdir(parents=True)
    blob.write_bytes(CONTENT)
    Service.reached.clear()
    try:
        with running_nginx(tmp_path, service.server_port) as port:
            yield port
    finally:
        service.shutdown()
        service.server_close()


def get(
    port: int, path: str, headers: dict[str, str] | None = None
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        return answer, answer.read()


def test_content_is_sent_by_the_proxy_with_the_services_headers(proxy: int) -> None:
    answer, content = get(proxy, "/files/1/content")
    assert (answer.status, content) == (200, CONTENT)
    assert {name: answer.headers[name] for name in PROTECTED} == PROTECTED
    # nginx would add one of its own, made of size and time.
    assert len(answer.headers.get_all("ETag") or []) == 1


def test_ranges_are_served_by_the_proxy(proxy: int) -> None:
    answer, content = get(proxy, "/files/1/content", {"Range": "bytes=8-12"})
    assert (answer.status, content) == (206, b"these")


def test_content_cannot_be_asked_for_directly(proxy: int) -> None:
    answer, _ = get(proxy, "/_blobs/objects/ab/blob")
    assert answer.status == 404


def test_no_log_holds_a_query(proxy: int, tmp_path: Path) -> None:
    get(proxy, "/files/1/content?grant=svg_secret", {"Referer": "http://elsewhere/?grant=svg_secret"})
    deadline = time.monotonic() + 60
    # nginx writes the line after it has sent the response.
    while not (log := (tmp_path / "quartermaster.log").read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert '"path":"/files/1/content"' in log
    assert "svg_secret" not in log + (tmp_path / "quartermaster.error.log").read_text()


def send(port: int, request: bytes) -> bytes:
    """Send exactly these bytes, and return the first line of the response."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(request)
        return connection.makefile("rb").readline()


def test_half_bodies_wait_in_the_proxy_and_whole_ones_pass_them(proxy: int) -> None:
    half = b"POST /oauth/token HTTP/1.1\r\nHost: here\r\nContent-Length: 1000\r\n\r\n" + b"x" * 17
    with contextlib.ExitStack() as stack:
        for _ in range(64):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", proxy), timeout=60))
            connection.sendall(half)
        for path in ("/oauth/token", "/v1/chat/completions", "/message:send", "/admin/organizations"):
            request = f"POST {path} HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\n\r\nok".encode()
            assert send(proxy, request).startswith(b"HTTP/1.1 200")
        assert len(Service.reached) == 4, "no half body has reached the service"


@pytest.mark.parametrize("path", ["/files/agent-artifacts", "/files/1", "/distributions/1/media"])
def test_uploads_reach_the_service_as_they_arrive(proxy: int, path: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\n\r\nha".encode()
    with socket.create_connection(("127.0.0.1", proxy), timeout=60) as connection:
        connection.sendall(head)
        deadline = time.monotonic() + 60
        while not Service.reached:
            assert time.monotonic() < deadline, "the service has heard of it"
            time.sleep(0.01)
        connection.sendall(b"lf")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_large_uploads_and_only_they_may_be_large(proxy: int) -> None:
    head = "POST {} HTTP/1.1\r\nHost: here\r\nContent-Length: 100000000\r\n\r\n"
    assert send(proxy, head.format("/v1/responses").encode()).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    "path",
    [
        "/metrics",
        "/metrics/",
        "//metrics",
        "///metrics//",
        "/%6detrics",
        "/%2fmetrics",
        "/./metrics",
        "/files/../metrics",
        "/files/%2e%2e/metrics",
        "/metrics?x=1",
        "/readyz",
        "/readyz/",
        "http://here/metrics",
    ],
)
def test_nothing_for_operators_is_reached_through_the_proxy(proxy: int, path: str) -> None:
    # Headers by which some servers rewrite the path must have no effect.
    for extra in ("", "SCRIPT_NAME: /metrics\r\n", "X-Original-URL: /metrics\r\nX-Rewrite-URL: /metrics\r\n"):
        assert send(proxy, f"GET {path} HTTP/1.1\r\nHost: here\r\n{extra}\r\n".encode()).startswith(
            b"HTTP/1.1 404"
        )
    assert Service.reached == []


def test_service_receives_the_proxys_view_of_the_client_address_only(
    proxy: int,
) -> None:
    claims = {
        "X-Forwarded-For": "192.0.2.1",
        "Forwarded": "for=192.0.2.1",
        "X-Real-IP": "192.0.2.1",
        "X-Forwarded-Host": "evil.example",
        "X-Forwarded-Proto": "gopher",
        "SCRIPT_NAME": "/x",
        "X_Forwarded_For": "192.0.2.1",
    }
    for path in ("/healthz", "/files/1"):
        get(proxy, path, claims)
    for _, _, headers in Service.reached:
        assert headers["x-forwarded-for"] == "127.0.0.1"
        assert headers["x-forwarded-proto"] == "http"
        assert "192.0.2.1" not in headers.values()
        assert headers.keys().isdisjoint({"forwarded", "x-real-ip", "x-forwarded-host", "script_name"})
    assert len(Service.reached) == 2


def test_there_is_room_for_thousands_of_silent_clients() -> None:
    main, proxied = (SHIPPED / "nginx.conf").read_text(), CONFIGURATION.read_text()
    connections = re.search(r"worker_connections (\d+);", main)
    assert connections is not None
    assert int(connections[1]) >= 16_000
    for rule in ("client_header_timeout 5s;", "client_body_timeout 10s;", "reset_timedout_connection on;"):
        assert rule in proxied


def test_a_front_that_is_away_costs_no_request(tmp_path: Path) -> None:
    service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    # No server listens at the first port.
    with running_nginx(tmp_path, find_free_port(), service.server_port) as port:
        for path in ("/message:send", "/files/agent-artifacts"):
            request = f"POST {path} HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\n\r\nok".encode()
            for _ in range(4):  # nginx distributes requests round robin
                assert send(port, request).startswith(b"HTTP/1.1 200")
    service.shutdown()
    service.server_close()


def test_fronts_that_are_replaced_in_turn_cost_no_request(tmp_path: Path) -> None:
    """Each web process stops as soon as the other responds again, while nginx still considers that one failed."""
    ports = [find_free_port(), find_free_port()]
    over = threading.Event()
    with contextlib.ExitStack() as closing:
        replaced = [closing.enter_context(contextlib.ExitStack()) for _ in ports]
        for front, at in zip(replaced, ports, strict=True):
            front.enter_context(trivial_front(tmp_path, PORT=str(at), WEB_THREADS="8"))
        proxy = closing.enter_context(running_nginx(tmp_path, *ports, error_level="error"))
        with ThreadPoolExecutor(8) as clients:
            asking = [clients.submit(_ask_until, over, proxy) for _ in range(8)]
            for front, at in zip(replaced, ports, strict=True):
                front.close()
                front.enter_context(trivial_front(tmp_path, PORT=str(at), WEB_THREADS="8"))
            over.set()
        answers = sum((each.result() for each in asking), Counter[int]())
    assert answers.keys() == {200}, (tmp_path / "quartermaster.error.log").read_text()


def test_a_front_that_says_nothing_is_asked_whether_it_is_there(tmp_path: Path) -> None:
    with contextlib.ExitStack() as closing:
        silent = closing.enter_context(socket.create_server(("127.0.0.1", 0)))
        front_port = silent.getsockname()[1]
        proxy = closing.enter_context(running_nginx(tmp_path, front_port))
        client = closing.enter_context(socket.create_connection(("127.0.0.1", proxy), timeout=60))
        client.sendall(b"POST /message:send HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\n\r\nok")
        # The connection is accepted but never read, as by a host that lost power.
        closing.enter_context(silent.accept()[0])
        wait_until(lambda: KEEPALIVE_TIMER in timers_towards(front_port), "the kernel's timer runs")


def timers_towards(port: int) -> set[str]:
    """Return the kernel's numbers of the active timers of connections to this local port."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[5].partition(":")[0] for row in rows if row[2].endswith(f":{port:04X}")}


def _ask_until(over: threading.Event, port: int) -> Counter[int]:
    """Send POST requests until the event, over one connection if nginx keeps it open; count the statuses."""
    statuses: Counter[int] = Counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    while not over.is_set():
        connection.request("POST", "/message:send", b"something")
        answer = connection.getresponse()
        answer.read()
        statuses[answer.status] += 1
    connection.close()
    return statuses


def test_nginx_gives_an_idle_connection_up_before_a_front_does() -> None:
    kept = re.search(r"\n    keepalive_timeout (\d+)s;", CONFIGURATION.read_text())
    assert kept is not None
    # Otherwise nginx could send a POST on a connection that the web process closes, and it does not repeat a POST.
    assert int(kept[1]) < min(STOPPING_SECONDS, ServerSettings().web_keepalive_seconds)
