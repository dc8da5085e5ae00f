"""The real web process, alone and behind the shipped nginx: how anonymous clients can affect others or the logs."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
import requests

from tests.support.agents.rest_clients import Client, exchange_token
from tests.support.processes.stack import Servers, Service, Stack, free_port, wait_until
from tests.support.servers.nginx import NGINX, running_nginx

HALF = b"POST /oauth/token HTTP/1.1\r\nHost: here\r\nContent-Length: 1000\r\n\r\n" + b"x" * 17


class Edge:
    """A web process that trusts proxies of this host, and its operations port."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.credentials = stack.set_up()
        self.operations_port = free_port()
        self.front: Service = stack.web(
            WEB_PROCESSES="1",
            TRUSTED_PROXIES="127.0.0.1",
            FAILED_LOGINS_PER_MINUTE="5",
            PUBLIC_METRICS="false",
            OPERATIONS_PORT=str(self.operations_port),
        )

    def logged(self, event: str) -> list[dict[str, str]]:
        lines = (json.loads(line) for line in self.front.log.read_text().splitlines() if line[:1] == "{")
        return [line for line in lines if line["event"] == event]


@pytest.fixture(scope="module")
def edge(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    stack = Stack(tmp_path_factory.mktemp("stack"), servers)
    edge = Edge(stack)
    with stack.running(edge.front):
        yield edge


def send(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(request)
        return connection.makefile("rb").readline()


def test_unparsable_header_is_refused_and_not_logged(edge: Edge) -> None:
    port = edge.stack.web_port
    for head in (
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nAuthorization : Basic canary1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Ke y: canary2\r\n\r\n",
        b"GET /healthz?grant=canary3 nonsense\r\nHost: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: canary4\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: canary5\r\n\r\n",
        b"canary6 /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    ):
        answer = send(port, head)
        assert answer == b"" or answer.split(b" ")[1] in (b"400", b"501")
    wait_until(lambda: len(edge.logged("request.malformed")) >= 5, "they are counted")
    assert "canary" not in edge.front.log.read_text()


@pytest.mark.parametrize(
    ("path", "header"),
    [
        ("/x/metrics", "SCRIPT_NAME: /x"),
        ("/metrics", "PATH_INFO: /healthz"),
        ("/metrics/", "X-Script-Name: /"),
        ("//metrics", "X: y"),
        ("/metrics", "X: y"),
    ],
)
def test_metrics_are_served_on_the_operations_port_alone(edge: Edge, path: str, header: str) -> None:
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\n{header}\r\nConnection: close\r\n\r\n".encode()
    assert send(edge.stack.web_port, request).startswith(b"HTTP/1.1 404")
    answer = requests.get(f"http://127.0.0.1:{edge.operations_port}/metrics", timeout=60)
    assert "quartermaster_http_requests_total" in answer.text


@pytest.fixture
def proxy(edge: Edge, tmp_path: Path) -> Iterator[int]:
    if NGINX is None:
        pytest.skip("nginx is not installed")
    with running_nginx(tmp_path, edge.stack.web_port) as port:
        yield port


def test_half_bodies_through_the_proxy_block_neither_json_nor_forms(edge: Edge, proxy: int) -> None:
    base = f"http://127.0.0.1:{proxy}"
    with ExitStack() as stack:
        for _ in range(64):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", proxy), timeout=60))
            connection.sendall(HALF)
        for _ in range(5):
            token = exchange_token(base, edge.credentials)
            answer = requests.post(f"{base}/oauth/introspect", data={"token": token}, timeout=60)
            assert answer.status_code == 401, "nobody introspects without a credential"
        agent = Client(base, token)
        uploaded = agent.upload(b"through the proxy", operation=uuid4())
        assert uploaded.status_code == 201
        renewed = requests.put(
            f"{base}/files/{uploaded.json()['id']}/retention",
            json={"retentionExpiresAt": None},
            headers={"Authorization": f"Bearer {token}"},
            timeout=60,
        )
        assert renewed.headers["Content-Type"].endswith("json"), "it was read, whatever is thought of it"
        assert renewed.status_code < 500


def test_client_address_from_the_proxy_is_counted_and_logged(edge: Edge, proxy: int) -> None:
    """Clients of the proxy cannot forge an address. A direct client on a trusted host can."""
    spoofed = {"X-Forwarded-For": "198.51.100.9", "X-Request-Id": "through-the-proxy"}
    requests.get(f"http://127.0.0.1:{proxy}/problems/file_not_found", headers=spoofed, timeout=60)
    named = {"X-Forwarded-For": "198.51.100.10", "X-Request-Id": "by-a-trusted-host"}
    requests.get(f"{edge.front.url}/problems/file_not_found", headers=named, timeout=60)

    def address(request_id: str) -> str | None:
        lines = [line for line in edge.logged("request.answered") if line["request_id"] == request_id]
        return lines[0]["client_address"] if lines else None

    for request_id in ("through-the-proxy", "by-a-trusted-host"):
        wait_until(lambda at=request_id: address(at), "it is logged")  # type: ignore[misc]
    assert address("through-the-proxy") == "127.0.0.1"
    assert address("by-a-trusted-host") == "198.51.100.10"
