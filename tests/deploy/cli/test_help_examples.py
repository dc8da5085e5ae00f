"""Every help page has an example that the command line accepts."""

import json
import shlex
from pathlib import Path
from uuid import uuid4

import click
import pytest

from deploy.cli.main import main
from tests.architecture.test_summaries import commands

LEAVES = {path: command for path, command in commands(main) if not isinstance(command, click.Group)}
FILES = ("report.pdf", "input.json", "settings.json", "url.txt", "models.toml")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a directory with the files of the examples and the settings of a `make up`."""
    for name in FILES:
        (tmp_path / name).write_text("{}")
    (tmp_path / "credentials.json").write_text(json.dumps({"organizationId": str(uuid4())}))
    monkeypatch.setenv("QM_HOME", str(tmp_path))
    monkeypatch.delenv("SERVICE_BASE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("home")
def test_every_commands_help_has_an_example_that_it_takes() -> None:
    assert len(LEAVES) > 130
    for path, command in LEAVES.items():
        line = command.get_help(click.Context(command, info_name=path)).partition("Example:")[2].strip()
        assert line.startswith(path), path
        words = shlex.split(line.removeprefix(path))
        context = command.make_context(path, words)
        assert context.params.keys() == {str(at.name) for at in command.params if at.expose_value}
        context.close()
