"""The operations port: three paths for operators, served even if all other threads are busy."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from deploy.embedded.ports import find_free_port
from deploy.embedded.valkey import EmbeddedValkey
from deploy.process_types import GUNICORN_SETTINGS
from shared.observability.multiprocess_metrics import HostMetrics
from shared.operations import operations_port as operations
from shared.operations.health_checks import Check, HealthChecks
from shared.operations.operations_port import OperationsPort
from tests.support.processes.stack import wait_until
from tests.support.web.web_process import open_front


def serve(checks: dict[str, Check], *, is_draining: bool = False) -> int:
    """Answer on some port for the rest of the run."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = OperationsPort(HealthChecks(checks, HostMetrics(None, "web")))
    port.serve(listener, is_draining=lambda: is_draining)
    number: int = listener.getsockname()[1]
    return number


def ask(port: int, path: str, *, method: str = "GET") -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with closing(connection):
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()


def fail() -> None:
    raise OSError("no")


def test_health_readiness_and_metrics_are_answered_and_nothing_else() -> None:
    port = serve({"store": lambda: None})
    assert ask(port, "/healthz") == (200, "application/json", '{"status":"ok"}')
    status, _, body = ask(port, "/readyz?x=1")
    assert (status, json.loads(body)) == (200, {"status": "ok", "checks": {"store": "ok"}})
    status, media_type, body = ask(port, "/metrics")
    assert (status, media_type.partition(";")[0]) == (200, "text/plain")
    assert 'quartermaster_processes{role="web"} 1.0' in body
    assert ask(port, "/metrics", method="HEAD")[2] == ""
    for path in ("/", "/files", "/metrics/", "//metrics", "/%6detrics", "/admin/me", "http://x/metrics"):
        assert ask(port, path)[0] == 404
    assert ask(port, "/healthz", method="POST")[0] == 405


def test_a_host_that_cannot_work_or_is_leaving_is_not_ready() -> None:
    status, _, body = ask(serve({"store": fail}), "/readyz")
    assert (status, json.loads(body)) == (503, {"status": "unavailable", "checks": {"store": "unavailable"}})
    status, _, body = ask(serve({}, is_draining=True), "/readyz")
    assert (status, json.loads(body)) == (503, {"status": "draining", "checks": {}})


@pytest.mark.parametrize(
    "sent", [b"\r\n\r\n", b"GET /healthz\r\n\r\n", b"\x16\x03\x01\r\n\r\n", b"GET a b c\r\n\r\n"]
)
def test_what_is_no_request_is_refused(sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", serve({})), timeout=60) as connection:
        connection.sendall(sent)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 400")


def test_connections_that_say_nothing_are_cut_off_and_others_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operations, "HEAD_SECONDS", 0.2)
    port = serve({})
    with ExitStack() as stack:
        for _ in range(4 * operations.CONNECTIONS):
            silent = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            silent.sendall(b"GET /heal")
        assert ask(port, "/healthz")[0] == 200
        assert silent.recv(1) == b""


APPLICATION = """
import time
from shared.observability.multiprocess_metrics import HostMetrics
from shared.operations.operations_port import OperationsPort
from shared.operations.health_checks import HealthChecks

class Application:
    extensions = {"operations_port": OperationsPort(HealthChecks({}, HostMetrics(None, "web")))}

    def __call__(self, environ, start_response):
        time.sleep(60)

application = Application()
"""


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Return the operations port of two web processes with all threads busy for a minute."""
    (tmp_path / "endless.py").write_text(APPLICATION)
    port, operations_port = find_free_port(), find_free_port()
    environment = {**os.environ, "PORT": str(port), "OPERATIONS_PORT": str(operations_port)}
    environment |= {"WEB_PROCESSES": "2", "WEB_THREADS": "2"}
    root = str(Path(__file__).parents[3])
    environment["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{root}"
    command = [sys.executable, "-m", "gunicorn", "--config", str(GUNICORN_SETTINGS), "endless:application"]
    with ExitStack() as stack:
        server = stack.enter_context(
            subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.DEVNULL)
        )
        stack.callback(server.wait)
        stack.callback(server.kill)
        wait_until(lambda: answers(operations_port), "the port answers")
        for _ in range(40):
            asking = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            asking.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        yield operations_port, server


def answers(port: int) -> bool:
    try:
        return ask(port, "/healthz")[0] == 200
    except OSError:
        return False


def test_operators_are_answered_while_every_thread_is_busy(busy: tuple[int, subprocess.Popen[bytes]]) -> None:
    port, _ = busy
    for path in ("/healthz", "/readyz", "/metrics"):
        assert ask(port, path)[0] == 200


def test_operators_are_answered_while_a_process_is_stopped_or_dead(
    busy: tuple[int, subprocess.Popen[bytes]],
) -> None:
    port, server = busy
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    # Until it has died, it may take a connection along.
    wait_until(lambda: not Path(f"/proc/{children[0]}/task/{children[0]}").exists(), "it is dead and buried")
    for _ in range(10):
        assert ask(port, "/healthz")[0] == 200


def test_metrics_can_be_taken_off_the_public_port(
    database_url: str, valkey_server: EmbeddedValkey, tmp_path: Path
) -> None:
    with open_front(database_url, valkey_server.url, tmp_path, public_metrics=False) as front:
        assert front.get("/metrics").status_code == 404
        wait_until(lambda: front.get("/readyz").status_code == 200, "it is ready")
