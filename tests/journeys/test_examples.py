"""Run the programs of docs/examples unchanged against a service, and check the collection of requests."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx

from deploy.embedded.ports import find_free_port
from docs.site.request_collection import collection
from tests.journeys.conftest import Installation
from tests.support.agents.rest_clients import open_link
from tests.support.processes.stack import ROOT, wait_until
from tests.support.web.openapi_documents import openapi_document

EXAMPLES = ROOT / "docs" / "examples"


def command(name: str, *arguments: str) -> list[str]:
    return [sys.executable, str(EXAMPLES / name), *arguments]


def environment(installation: Installation) -> Mapping[str, str]:
    deployment, distribution = (installation.credentials[name] for name in ("deployment", "distribution"))
    return {
        **os.environ,
        "SERVICE_BASE_URL": installation.front.url,
        "SERVICE_CLIENT_ID": deployment["clientId"],
        "SERVICE_CLIENT_SECRET": deployment["clientSecret"],
        "DISTRIBUTION_ID": distribution["id"],
        "DISTRIBUTION_TOKEN": distribution["token"],
    }


def run(installation: Installation, name: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        command(name, *arguments),
        env=environment(installation),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_backend_shares_a_report_and_connector_pushes_a_picture(
    installation: Installation, tmp_path: Path
) -> None:
    report, picture = tmp_path / "report.txt", tmp_path / "cat.gif"
    report.write_text("42 items")
    picture.write_bytes(b"GIF89a")
    stack = installation.stack
    with stack.running(stack.worker("files"), stack.worker("models"), stack.worker("media")):
        link, answer = run(installation, "backend.py", str(report))
        state, file_id = run(installation, "connector.py", "m-1", str(picture))[0].split()
    assert open_link(link, via=installation.front.url).text == "42 items"
    assert "Sum up: 42 items" in answer
    assert state == "Stored"
    assert installation.owner.download(file_id).content == b"GIF89a"


def test_example_agent_serves_its_card(installation: Installation) -> None:
    port = find_free_port()
    process = subprocess.Popen(
        command("agent.py"), env={**environment(installation), "PORT": str(port)}, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: card_of(port).get("name") == "Reporter", "the agent answers")
    finally:
        process.kill()
        process.wait()


def card_of(port: int) -> dict[str, object]:
    try:
        card: dict[str, object] = httpx.get(f"http://127.0.0.1:{port}/.well-known/agent-card.json").json()
    except httpx.TransportError:
        return {}
    return card


def test_every_example_is_listed() -> None:
    told = (EXAMPLES / "README.md").read_text()
    assert [path.name for path in EXAMPLES.glob("*.py") if f"| `{path.name}` |" not in told] == []


def test_request_collection_has_every_operation() -> None:
    files = collection()
    operations = [
        (method, operation)
        for methods in openapi_document()["paths"].values()
        for method, operation in methods.items()
        if method not in ("head", "options")
    ]
    for method, operation in operations:
        text = files[f"{operation['tags'][0]}/{operation['operationId']}.bru"]
        assert f"\n{method} {{\n  url: {{{{base}}}}/" in text
        opened, closed = (re.findall(at, text, re.MULTILINE) for at in (r"^\S+ \{$", r"^\}$"))
        assert len(opened) == len(closed) >= 2
    assert len(files) == len(operations) + 2
