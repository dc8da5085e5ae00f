"""The tools that check deployment files: Helm, Kubernetes' schemas, compose, hadolint.

They have an environment of their own, which `make test-deploy` creates. Without it these tests are skipped.
"""

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "chart"
RENDER = Path(__file__).with_name("render.py")
INFORMATION = 1
Render = Callable[[Mapping[str, Any]], list[dict[str, Any]]]
RunTool = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def run_tool() -> RunTool:
    """Return a function that runs a tool by name, and returns its status and output."""
    directory = os.environ.get("DEPLOY_TOOLS")
    if not directory:
        pytest.skip("no tools; run `make test-deploy`")

    def run(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [str(Path(directory) / "bin" / name), *map(str, arguments)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    return run


@pytest.fixture(scope="session")
def render(run_tool: RunTool) -> Render:
    """Return a function that renders the chart with values, after Helm's linter accepted it."""

    def render_chart(values: Mapping[str, Any]) -> list[dict[str, Any]]:
        done = run_tool("python", RENDER, CHART, json.dumps(values))
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert [each for each in found["lint"] if each["severity"] > INFORMATION] == []
        return list(_documents(found["rendered"]))

    return render_chart


def _documents(rendered: Mapping[str, str]) -> Sequence[dict[str, Any]]:
    texts = [text for path, text in rendered.items() if path.endswith(".yaml")]
    return [document for text in texts for document in yaml.safe_load_all(text) if document]
