"""A running service for published clients and frameworks, which have an environment of their own.

`make test-clients` creates it. Without it these tests are skipped.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.models.model_service import ModelService, running_model_service


@pytest.fixture(scope="session")
def environment() -> Path:
    """Return the directory of the clients."""
    directory = os.environ.get("STRICT_CLIENTS")
    if not directory:
        pytest.skip("no clients; run `make test-clients`")
    return Path(directory)


@pytest.fixture(scope="session")
def node(environment: Path) -> Path:
    """Return the program that runs the Node clients."""
    program = shutil.which("node")
    if program is None or not (environment / "node_modules").exists():
        pytest.skip("node or its packages are missing: its clients ask nothing")
    return Path(program)


@pytest.fixture(scope="session")
def service(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelService]:
    """Run a web process and the workers of models."""
    directory = tmp_path_factory.mktemp("strict_clients")
    with running_model_service(directory, "models", "background", "ledger") as running:
        yield running
