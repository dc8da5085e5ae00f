"""A backend: it stores a report, shares it for an hour, and has a model sum it up."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from quartermaster import Client


def publish(client: Client, report: Path) -> str:
    """Store a report for a month; give a link to exactly this version."""
    until = datetime.now(UTC) + timedelta(days=30)
    stored = client.files.upload(report, retention_expires_at=until)
    return client.files.create_read_link(stored.id, stored.version_id, ttl_minutes=60).url


def sum_up(client: Client, text: str, model: str = "scripted/echo") -> str:
    """Ask a model, and give its answer as it has all come."""
    question = {"model": model, "store": False, "stream": True, "input": f"Sum up: {text}"}
    events = client.raw.stream("/v1/responses", json=question)
    return "".join(at["delta"] for at in events if at["type"] == "response.output_text.delta")


if __name__ == "__main__":
    path = Path(sys.argv[1])
    with Client() as service:
        print(publish(service, path))
        print(sum_up(service, path.read_text()))
