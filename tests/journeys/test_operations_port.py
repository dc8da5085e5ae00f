"""The operations port of a host: it shows every live process and no dead one."""

import contextlib
from pathlib import Path
from uuid import uuid4

import requests

from tests.journeys.test_full_store import small_disk as small_disk  # noqa: PLC0414 (a fixture)
from tests.support.agents.rest_clients import Client, exchange_token
from tests.support.processes.stack import Servers, Stack, free_port, wait_until


def test_operations_port_shows_every_process_of_a_host(servers: Servers, tmp_path: Path) -> None:
    stack = Stack(tmp_path / "stack", servers)
    stack.set_up()
    port = free_port()
    shared = {"METRICS_DIRECTORY": str(tmp_path / "metrics")}
    front = stack.web(port=stack.web_port, WEB_PROCESSES="2", OPERATIONS_PORT=str(port), **shared)
    worker = stack.worker("files", **shared)
    with stack.running(front, worker):

        def seen(role: str, count: int) -> None:
            wait_until(
                lambda: f'quartermaster_processes{{role="{role}"}} {count}.0' in metrics(port),
                f"{count} {role}",
            )

        seen("web", 2)
        seen("worker-files", 1)
        worker.kill()
        wait_until(
            lambda: 'processes{role="worker-files"}' not in metrics(port), "a dead worker is not counted"
        )


def test_uploads_are_acknowledged_while_no_metric_can_be_stored(
    servers: Servers, small_disk: Path, tmp_path: Path
) -> None:
    """Counters were mapped from this disk: once it was full, counting killed the process or failed the request."""
    with contextlib.suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as file:
        while file.write(bytes(1 << 16)):
            pass
    stack = Stack(tmp_path / "stack", servers)
    credentials = stack.set_up()
    full = {"METRICS_DIRECTORY": str(small_disk), "PROMETHEUS_MULTIPROC_DIR": str(small_disk)}
    front = stack.web(port=stack.web_port, WEB_PROCESSES="1", **full)
    with stack.running(front, stack.worker("files", **full)):
        agent = Client(front.url, exchange_token(front.url, credentials))
        uploaded = agent.upload(b"counted all the same", operation=uuid4())
        assert uploaded.status_code == 201
        counted = requests.get(f"{front.url}/metrics", timeout=60).text
        assert "quartermaster_uploaded_bytes_total 20.0" in counted
        assert "quartermaster_metrics_unwritten_total 0.0" not in counted


def metrics(port: int) -> str:
    return requests.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text
