"""Run the README's commands unchanged."""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from deploy.embedded.home import Home
from shared.models.catalog_format import read_catalog
from tests.journeys.conftest import Installation
from tests.support.agents.rest_clients import open_link
from tests.support.processes.agent_processes import DEVELOPMENT, running_agent
from tests.support.processes.stack import ROOT, Servers, Stack

pytestmark = pytest.mark.usefixtures("workers")

_SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_readme_commands_have_their_documented_effect(servers: Servers, tmp_path: Path) -> None:
    commands = _SHELL_BLOCK.findall((ROOT / "README.md").read_text())
    assert len(commands) == 6
    stack = Stack(tmp_path / "var", servers, settings=DEVELOPMENT)
    credentials, front = stack.set_up(), stack.web()
    own = {name: value for name, value in stack.environment.items() if os.environ.get(name) != value}
    Home(stack.directory).write_settings(own)  # The commands need these, as `make up` sets them.
    workers = [stack.worker(name) for name in ("files", "models", "agents")]
    with stack.running(front, *workers), running_agent(front.url, credentials) as address:
        done = subprocess.run(
            ["sh", "-eux", "-c", "\n".join(commands)],
            cwd=tmp_path,
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "QM_HOME": str(stack.directory),
                "AGENT_URL": address,
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=270,
        )
    assert done.returncode == 0, done.stderr


def test_requests_uploads_and_downloads_a_hundred_mebibytes(
    installation: Installation, tmp_path: Path
) -> None:
    """A strict client transfers a large file: the download equals the upload, by token and by link."""
    content = tmp_path / "large.bin"
    content.write_bytes(os.urandom(1 << 20) * 100)
    agent = installation.agent
    uploaded = agent.upload(content.read_bytes(), operation=uuid4())
    assert uploaded.status_code == 201, uploaded.text
    file = uploaded.json()
    link = agent.grant(file["id"], file["versionId"]).json()["url"]
    downloaded = open_link(link, via=installation.front.url)
    assert hashlib.sha256(downloaded.content).hexdigest() == file["metadata"]["contentSha256"]
    assert downloaded.content == content.read_bytes()


def test_readme_models_file_is_valid(tmp_path: Path) -> None:
    (shown,) = re.findall(r"^```toml\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    file = tmp_path / "models.toml"
    file.write_text(shown)
    assert [entry.id for entry in read_catalog(file).entries] == ["local/llama"]
