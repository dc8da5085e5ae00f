"""What operators see of a host: every process that is alive, and none that is not."""

from __future__ import annotations

from pathlib import Path

import requests

from tests.support.stack import Servers, Stack, free_port, wait_until


def test_every_process_of_a_host_is_seen_on_its_operations_port(servers: Servers, tmp_path: Path) -> None:
    stack = Stack(tmp_path / "stack", servers, name="seen", redis_database=7)
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
        wait_until(lambda: "worker-files" not in metrics(port), "a dead worker is not counted")


def metrics(port: int) -> str:
    return requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text
