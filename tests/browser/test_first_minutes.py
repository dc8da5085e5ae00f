"""The first ten minutes: `make up` in a terminal, and a new user who reads only what it prints.

A part of `make test-console`. The same steps run by the command that `make up` names, and in the browser that opens
its link.
"""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.ports import find_free_port
from tests.openapi.conftest import run
from tests.support.agents.rest_clients import open_link
from tests.support.processes.stack import FOREIGN, ROOT, wait_until

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]
HERE = Path(__file__).parent
STYLES = re.compile(r"\x1b\[[0-9;]*m")
PATIENCE_SECONDS = 180.0
REPORT = "the first report of the first day"


@dataclass(frozen=True, kw_only=True)
class Started:
    """The running service, and what it printed when it was ready."""

    url: str
    told: str
    home: Path

    @property
    def link(self) -> str:
        """Return the link to the console."""
        found = re.search(r"http\S+/console/in#svl_\w+", self.told)
        assert found, self.told
        return found[0]

    def command(self, *words: str) -> str:
        """Run the command as it was printed. Return its JSON output."""
        found = re.search(r"(?:QM_HOME=\S+ )?\S*quartermaster(?= console link)", self.told)
        assert found, self.told
        inherited = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        line = ["sh", "-c", f'{found[0]} "$@"', "sh", *words]
        ran = subprocess.run(
            line, cwd=ROOT, env=inherited, capture_output=True, text=True, timeout=120, check=False
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


@pytest.fixture(scope="module")
def started(node: Path, chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """Run `make up` in a terminal, with an empty home directory."""
    home, port = tmp_path_factory.mktemp("newcomer") / "home", find_free_port()
    inherited = {name: value for name, value in os.environ.items() if name not in {*FOREIGN, "MAKELEVEL"}}
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["make", "--no-print-directory", "up", f"VENV={sys.prefix}"],
        cwd=ROOT,
        env=inherited | {"QM_HOME": str(home), "PORT": str(port)},
        stdout=theirs,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    os.close(theirs)
    said: list[bytes] = []
    reader = threading.Thread(target=_read, args=(ours, said))
    reader.start()

    def told() -> str:
        return STYLES.sub("", b"".join(said).decode(errors="replace"))

    try:
        wait_until(
            lambda: "Ctrl-C" in told() or process.poll() is not None, "it is ready", seconds=PATIENCE_SECONDS
        )
        assert process.poll() is None, told()
        yield Started(url=f"http://127.0.0.1:{port}", told=told(), home=home)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)  # The signal of Ctrl-C.
        process.wait(PATIENCE_SECONDS)
        reader.join()
        os.close(ours)


def _read(terminal: int, said: list[bytes]) -> None:
    with contextlib.suppress(OSError):  # All writers have ended.
        while read := os.read(terminal, 1 << 16):
            said.append(read)


@pytest.fixture(scope="module")
def stored(started: Started, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A file that the command stored."""
    report = tmp_path_factory.mktemp("reports") / "first-report.txt"
    report.write_text(REPORT)
    file: dict[str, Any] = json.loads(started.command("files", "put", str(report)))
    return file


def test_printed_links_and_commands_work(started: Started) -> None:
    assert f"Quartermaster is ready at {started.url}" in started.told
    assert str(started.home / "credentials.json") in started.told
    assert started.link.startswith(started.url)
    assert '"event"' not in started.told


def test_command_shares_a_file_and_calls_model_and_agent(started: Started, stored: dict[str, Any]) -> None:
    shared = json.loads(started.command("files", "share", stored["id"]))
    assert open_link(shared["url"], via=started.url).text == REPORT
    assert "good morning" in started.command("models", "ask", "scripted/echo", "good morning")
    assert "good evening" in started.command("agents", "talk", "default", "good evening")


def test_browser_shares_a_file_and_calls_model_and_agent(
    started: Started, stored: dict[str, Any], chromium: str, tmp_path: Path
) -> None:
    plan = {
        "browser": chromium,
        "link": started.link,
        "file": stored["metadata"]["fileName"],
        "question": "What is in the report?",
        "greeting": "Good afternoon",
    }
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    ran = run(["sh", "-c", f"exec node {HERE}/first_minutes.mjs < {path}"], tmp_path)
    assert ran.returncode == 0, ran.stderr
    done = json.loads(ran.stdout)
    assert "Overview" in done["title"]
    assert done["shared"] == REPORT
    assert "What is in the report?" in done["reply"]
    assert "Completed" in done["bill"]
    assert "completed" in done["task"]
    assert done["task"].count("Good afternoon") >= 2
