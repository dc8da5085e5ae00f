"""A real third-party agent in a process of its own, which can be killed and restarted at its address."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import requests

from tests.support.processes.stack import ROOT, free_port, wait_until
from tests.support.servers.local_servers import ADDRESS


class GenuineAgent:
    """a2a-sdk's server (`remote_agent.py`), which can be killed and restarted at its address."""

    def __init__(self, *, store: str | None = None) -> None:
        self.port = free_port()
        self.url = f"http://{ADDRESS}:{self.port}"
        self._arguments = [str(self.port)] + ([store] if store else [])
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the agent, and wait until it responds."""
        self._listen(self._prepare())

    @contextmanager
    def prepared_restart(self) -> Iterator[Callable[[], None]]:
        """Within the block, keep a second process ready; the yielded function replaces the first by it.

        The agent is then down only for a moment, however long a process takes to start.
        """
        successor = self._prepare()

        def restart() -> None:
            self.kill()
            self._listen(successor)

        try:
            yield restart
        finally:
            if self._process is not successor:
                _end(successor)

    def kill(self) -> None:
        """Kill the agent by SIGKILL."""
        if self._process is not None:
            _end(self._process)
            self._process = None

    def seen(self) -> list[dict[str, Any]]:
        """Return the heads of the requests since its start."""
        found: list[dict[str, Any]] = requests.get(f"{self.url}/seen", timeout=60).json()
        return found

    def sent(self) -> list[dict[str, Any]]:
        """Return the heads of the requests that sent a message."""
        return [head for head in self.seen() if "idempotency-key" in head["headers"]]

    def received(self, after: int) -> list[str]:
        """Return the turns whose messages it received."""
        return [head["headers"]["idempotency-key"] for head in self.sent()[after:]]

    def state_of(self, task_id: str) -> str:
        """Return the state of a task, as the agent reports it."""
        task = requests.get(f"{self.url}/tasks/{task_id}", headers={"A2A-Version": "1.0"}, timeout=60).json()
        return str(task["status"]["state"])

    def wait_for_a_task(self) -> None:
        """Wait until the agent has a task."""
        headers = {"A2A-Version": "1.0"}
        wait_until(
            lambda: requests.get(f"{self.url}/tasks", headers=headers, timeout=60).json().get("tasks"),
            "a task of the agent",
        )

    def _prepare(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.support.agents.remote_agent", "--when-told", *self._arguments]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline(), "the agent ended"
        return process

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        wait_until(self._answers, "the agent", seconds=60)

    def _answers(self) -> bool:
        try:
            return requests.get(f"{self.url}/seen", timeout=60).ok
        except requests.RequestException:
            return False


def _end(process: subprocess.Popen[bytes]) -> None:
    with process:
        process.kill()


@contextmanager
def genuine_agent(**options: Any) -> Iterator[GenuineAgent]:
    """Run a real agent within the block."""
    agent = GenuineAgent(**options)
    agent.start()
    try:
        yield agent
    finally:
        agent.kill()
