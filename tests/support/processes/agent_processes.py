"""The SDK's example of an agent, as a process that a service on this machine sends messages to."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import requests

from tests.support.processes.stack import ROOT, free_port, wait_until

DEVELOPMENT = {"EGRESS_ALLOW_PRIVATE": "true", "EGRESS_ALLOW_HTTP": "true"}
"""The settings of a service that reaches agents on this machine."""


@contextlib.contextmanager
def running_agent(url: str, credentials: dict[str, Any]) -> Iterator[str]:
    """Run the example with its deployment's credentials; yield its URL."""
    port = free_port()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SERVICE_")},
        "SERVICE_BASE_URL": url,
        "SERVICE_CLIENT_ID": credentials["deployment"]["clientId"],
        "SERVICE_CLIENT_SECRET": credentials["deployment"]["clientSecret"],
        "PORT": str(port),
    }
    example = ROOT / "docs" / "examples" / "agent.py"
    with subprocess.Popen([sys.executable, str(example)], env=environment, cwd=ROOT) as agent:
        try:
            address = f"http://127.0.0.1:{port}"
            wait_until(lambda: _answers(address), "the agent answers")
            yield address
        finally:
            agent.kill()


def _answers(address: str) -> bool:
    with contextlib.suppress(requests.ConnectionError):
        return requests.get(f"{address}/.well-known/agent-card.json", timeout=60).ok
    return False
