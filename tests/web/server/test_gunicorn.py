"""The web process's settings, in a real gunicorn."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.process_types import GUNICORN_SETTINGS, web_command
from tests.support.processes.stack import wait_until
from tests.web.server.trivial_front import ROOT, trivial_front

_REQUEST = b"GET %s HTTP/1.1\r\nHost: here\r\nConnection: %s\r\n\r\n"


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Run gunicorn with our settings and a trivial application."""
    with trivial_front(tmp_path, WEB_SEND_SECONDS="1") as front:
        yield front.port


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WEB_THREADS", "many"),
        ("WEB_PROCESSES", "0"),
        ("WEB_HEAD_SECONDS", "nan"),
        ("STORAGE_GRACE_DAYS", "-1"),
    ],
)
def test_invalid_setting_ends_the_start_with_an_instruction(name: str, value: str) -> None:
    service = {"BLOB_STORE": "file:///b", "DATABASE_URL": "postgresql:///d", "REDIS_URL": "redis://h/0"}
    environment = os.environ | service | {"ENCRYPTION_KEYS": "k", name: value}
    started = subprocess.run(
        web_command(), env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert started.returncode == 1
    (line,) = started.stderr.splitlines()
    assert line.startswith(f"{name}={value} is not usable: ")
    assert "Change it or leave it out" in line


def test_queue_timeout_equals_the_slot_timeout() -> None:
    read = f"import runpy; print(runpy.run_path({str(GUNICORN_SETTINGS)!r})['worker_class'].limits.queue_seconds)"
    environment = os.environ | {"SLOT_WAIT_SECONDS": "42.5"}
    started = subprocess.run(
        [sys.executable, "-c", read], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert started.stdout == "42.5\n"


def test_clients_that_do_not_close_delay_no_other_client(port: int) -> None:
    """gunicorn's accepting thread waits up to two seconds for each connection that it closes; ours does not wait."""
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(_ask(port, b"close")) for _ in range(10)]
        for connection in idle:
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
        with _ask(port, b"keep-alive") as asking:
            assert asking.recv(1 << 16).startswith(b"HTTP/1.1 200"), "the client is as patient as ten seconds"


def test_consecutive_requests_share_a_connection_until_either_side_closes_it(
    port: int,
) -> None:
    with _ask(port, b"keep-alive") as asking:
        for _ in range(5):
            _read_answer(asking)
            asking.sendall(_REQUEST % (b"/", b"keep-alive"))
        _read_answer(asking)
        asking.sendall(_REQUEST % (b"/", b"close"))
        _read_answer(asking)
        assert asking.recv(1) == b""
    with _ask(port, b"keep-alive") as leaving:
        _read_answer(leaving)


def test_paused_connections_use_no_thread(port: int) -> None:
    with contextlib.ExitStack() as stack:
        pausing = [stack.enter_context(_ask(port, b"keep-alive")) for _ in range(6)]
        for connection in pausing:
            _read_answer(connection)
        for connection in reversed(pausing):
            connection.sendall(_REQUEST % (b"/", b"keep-alive"))
            _read_answer(connection)


def test_client_that_does_not_read_is_disconnected(port: int, tmp_path: Path) -> None:
    with _ask(port, b"close", path=b"/endless"):
        wait_until((tmp_path / "ended").exists, "the thread is free again")


def _ask(port: int, connection: bytes, *, path: bytes = b"/") -> socket.socket:
    asking = socket.create_connection(("127.0.0.1", port), timeout=60)
    asking.sendall(_REQUEST % (path, connection))
    return asking


def _read_answer(connection: socket.socket) -> None:
    received = b""
    while not received.endswith(b"\r\n\r\nok"):
        piece = connection.recv(1 << 16)
        assert piece, received
        received += piece
