"""A running service for the tools that read its OpenAPI document, and for browsers.

The tools have a directory of their own, which `make test-openapi` creates. Without it these tests are skipped.
"""

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.models.model_service import ModelService, running_model_service

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def tools() -> Path:
    """Return the directory of the tools."""
    directory = os.environ.get("OPENAPI_TOOLS")
    if not directory:
        pytest.skip("no tools; run `make test-openapi`")
    return Path(directory)


@pytest.fixture(scope="session")
def node(tools: Path) -> Path:
    """Return the directory of the Node tools."""
    if shutil.which("node") is None or not (tools / "node_modules").exists():
        pytest.skip("node or its packages are missing: lint, types and pages are not checked")
    return tools


@pytest.fixture(scope="session")
def service(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelService]:
    """Run a web process, and the workers of files and models."""
    directory = tmp_path_factory.mktemp("openapi")
    with running_model_service(directory, "files", "models", "background") as running:
        yield running


@pytest.fixture(scope="session")
def document(service: ModelService, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the service's document to a file."""
    kept = tmp_path_factory.mktemp("document") / "openapi.json"
    with urllib.request.urlopen(f"{service.front.url}/openapi.json") as answer:
        kept.write_bytes(answer.read())
    assert json.loads(kept.read_text())["openapi"].startswith("3.1")
    return kept


def run(
    command: Sequence[str | Path], directory: Path, *, seconds: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run a tool. Return its result and output."""
    environment = {**os.environ, "NO_COLOR": "1", "REDOCLY_TELEMETRY": "off", "CI": "true"}
    return subprocess.run(
        [*map(str, command)],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
