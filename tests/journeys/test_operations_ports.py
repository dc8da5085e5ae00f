"""Workers and beat respond on an operations port of their own, and continue if the port is taken."""

import http.client
import json
from contextlib import closing

from deploy.embedded.ports import find_free_port
from tests.support.processes.stack import Stack, wait_until


def ask(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def is_ready(port: int) -> bool:
    try:
        return ask(port, "/readyz")[0] == 200
    except OSError:
        return False


def test_worker_serves_its_own_operations_port(stack: Stack) -> None:
    port, beats = find_free_port(), find_free_port()
    worker, beat = stack.worker("ledger", OPERATIONS_PORT=str(port)), stack.beat(OPERATIONS_PORT=str(beats))
    with stack.running(worker, beat):
        wait_until(lambda: is_ready(port) and is_ready(beats), "both answer")
        assert json.loads(ask(port, "/readyz")[1])["checks"] == {"database": "ok", "broker": "ok"}
        assert json.loads(ask(beats, "/readyz")[1])["checks"] == {"broker": "ok"}
        assert 'quartermaster_processes{role="beat"} 1.0' in ask(beats, "/metrics")[1]

        def has_swept() -> bool:
            metrics = ask(port, "/metrics")[1]
            return 'quartermaster_processes{role="worker-ledger"} 1.0' in metrics and "jobs_total{" in metrics

        wait_until(has_swept, "the jobs of the schedule are counted")


def test_worker_with_a_taken_port_logs_it_and_works(stack: Stack) -> None:
    port = find_free_port()
    first, second = (stack.worker("ledger", OPERATIONS_PORT=str(port)) for _ in range(2))
    with stack.running(first):
        wait_until(lambda: is_ready(port), "the first answers")
        with stack.running(second):
            wait_until(lambda: second.has_logged("operations_port.not_opened"), "the second says so")
            wait_until(lambda: second.has_logged("ready."), "the second is at work")
