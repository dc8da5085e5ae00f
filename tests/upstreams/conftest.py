"""A genuine model server with a tiny random model, and the service in front of it.

The server has an environment of its own, which `make test-upstreams` creates. Without it these tests are skipped.
"""

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from deploy.supervision.child_processes import Program, kill, spawn
from tests.support.processes.stack import Servers, Stack, free_port, wait_until

ROOT = Path(__file__).resolve().parents[2]
VENV = Path(os.environ.get("UPSTREAMS_VENV", str(Path(sys.prefix) / "upstreams"))) / "bin"
SECONDS_TO_LOAD = 240.0
CATALOG = """
[providers.genuine]
base_url = "{address}"

[[models]]
id = "tiny/chat"
prompt_price = "1"
completion_price = "2"
upstreams = [{{ provider = "genuine", model = "{model}" }}]

[[models]]
id = "tiny/responses"
prompt_price = "1"
completion_price = "2"
upstreams = [{{ provider = "genuine", model = "{model}", dialect = "responses" }}]
"""


@pytest.fixture(scope="session")
def genuine_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Create the model, serve it, and write a catalog file for both dialects."""
    if not (VENV / "transformers").exists():
        pytest.skip(f"no server in {VENV}; run `make test-upstreams`")
    directory = tmp_path_factory.mktemp("genuine")
    model = directory / "tiny"
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(directory)}
    maker = str(Path(__file__).with_name("tiny_model.py"))
    subprocess.run([str(VENV / "python"), maker, str(model)], check=True, env=offline, capture_output=True)
    port = free_port()
    command = [str(VENV / "transformers"), "serve", str(model), "--device", "cpu", "--host", "127.0.0.1"]
    server = Program(
        name="genuine",
        command=(*command, "--port", str(port)),
        environment=offline,
        directory=directory,
        log=directory / "server.log",
        stop_seconds=10,
    )
    process = spawn(server)
    try:
        address = f"http://127.0.0.1:{port}"
        wait_until(lambda: _is_answering(address), f"the server; see {server.log}", seconds=SECONDS_TO_LOAD)
        catalog = directory / "models.toml"
        catalog.write_text(CATALOG.format(address=f"{address}/v1", model=model))
        yield catalog
    finally:
        kill(process)


@pytest.fixture(scope="session")
def client(genuine_catalog: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    """Run the service with that catalog. Yield its owner's client, which validates every response."""
    servers = Servers(tmp_path_factory.mktemp("servers"))
    servers.start()
    try:
        settings = {"MODELS_CONFIG": str(genuine_catalog)}
        stack = Stack(tmp_path_factory.mktemp("stack"), servers, settings=settings)
        key: str = stack.set_up()["ownerApiKey"]
        front = stack.web()
        with (
            stack.running(front, stack.worker("models")),
            openai.OpenAI(
                base_url=f"{front.url}/v1", api_key=key, max_retries=0, _strict_response_validation=True
            ) as connected,
        ):
            yield connected
    finally:
        servers.stop()


def _is_answering(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
