"""The README's examples run unchanged, in order, against a running service."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from quartermaster.agents import Agent
from sdk.tests.live.conftest import Installation

README = Path(__file__).parents[2] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_examples_run(
    installation: Installation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in installation.deployment.items():
        monkeypatch.setenv(f"SERVICE_{name.upper()}", value)
    monkeypatch.setattr(Agent, "serve", lambda self, **_: self.app())
    monkeypatch.chdir(tmp_path)
    Path("report.pdf").write_bytes(b"%PDF-1.7")
    names: dict[str, Any] = {"__name__": "example"}
    for example in EXAMPLES:
        exec(compile(example, str(README), "exec"), names)
    names["client"].close()
    printed = capsys.readouterr().out
    assert f"{installation.front.url}/files/" in printed
    assert "404 file_not_found" in printed
    assert Path("draft.txt").read_bytes() == b"better words"
    assert len(EXAMPLES) >= 7
