"""Run the commands of the guides unchanged."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from deploy.embedded.home import Home
from tests.support.agents.rest_clients import Client, exchange_token
from tests.support.processes.stack import FOREIGN, ROOT, Servers, Service, Stack, wait_until
from tests.support.servers.small_disks import MEBIBYTE, CannotMount, SmallDisk, mounted_disk

GUIDES = ROOT / "docs" / "guides"
WORKERS = ("files", "background", "models", "agents")
PATIENCE_SECONDS = 270

_SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# The test performs what an operator does between two blocks of a guide.
_MEANWHILE = re.compile(r"^<!-- test: ([\w ]+) -->$", re.MULTILINE)
_OF_OPERATORS = {"full-disk", "brokers", "keys"}
"""What is run with the settings of the service in the environment."""
_KEEP_NAMES = 'trap "{ declare -f; export -p; } > names" EXIT'


class Guided:
    """An installation, and the actions of a guide's operator."""

    def __init__(self, stack: Stack, disk: SmallDisk | None) -> None:
        self.stack = stack
        self.disk = disk
        self.credentials = stack.set_up()
        self._services: Sequence[Service] = ()

    def restart(self, workers: Sequence[str] = WORKERS, **environment: str) -> None:
        """Restart the web process and these workers, with changes to their environment."""
        self.stack.kill_all()
        self.stack.environment = {**self.stack.environment, **environment}
        Home(self.stack.directory).write_settings(self._settings())
        self._services = [self.stack.web(), *(self.stack.worker(name) for name in workers)]
        for service in self._services:
            service.start()
        self._services[0].wait_until_answering()

    def at_a_shell(self) -> dict[str, str]:
        """Return the environment of a reader: the command, and the home of the running service."""
        return {name: value for name, value in self.stack.environment.items() if name not in self._settings()}

    def _settings(self) -> dict[str, str]:
        inherited = {"QM_HOME", "PATH"} | (os.environ.keys() - {*FOREIGN})
        return {name: value for name, value in self.stack.environment.items() if name not in inherited}

    def has_logged(self, text: str) -> bool:
        return self._services[-1].has_logged(text)

    def upload(self, size_bytes: int) -> None:
        front = self._services[0]
        agent = Client(front.url, exchange_token(front.url, self.credentials))
        assert agent.upload(b"x" * size_bytes, operation=uuid4()).status_code == 201


@pytest.fixture(scope="module")
def guided(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guided]:
    """Run an installation whose content is on a small disk, if one can be mounted."""
    directory = tmp_path_factory.mktemp("guides")
    with ExitStack() as mounted:
        try:
            disk = mounted.enter_context(mounted_disk(directory, size_bytes=32 * MEBIBYTE))
        except CannotMount:
            disk = None
        store = disk.path if disk is not None else directory
        stack = Stack(directory / "stack", servers, blob_store=(store / "blobs").as_uri())
        stack.environment["BLOB_STORE_RESERVE_BYTES"] = str(MEBIBYTE)
        guided = Guided(stack, disk)
        guided.restart()
        try:
            yield guided
        finally:
            stack.kill_all()


@pytest.mark.parametrize("guide", ["files", "models", "agents", "media", "observe", "command-line"])
def test_guide_commands_have_their_documented_effect(guided: Guided, guide: str, tmp_path: Path) -> None:
    follow(guided, guide, tmp_path, {})


def test_guide_to_a_full_disk_frees_space_while_the_disk_stays_full(guided: Guided, tmp_path: Path) -> None:
    disk = guided.disk
    if disk is None:
        pytest.skip("a small disk cannot be mounted here")
    guided.upload(8 * MEBIBYTE)
    try:
        follow(guided, "full-disk", tmp_path, {"fill the disk": lambda _: disk.fill()})
    finally:
        disk.free()


def test_guide_to_brokers_inspects_the_workers(guided: Guided, tmp_path: Path) -> None:
    guided.restart(workers=("files",))
    wait_until(lambda: guided.has_logged(" ready."), "the worker is ready")
    follow(guided, "brokers", tmp_path, {})


def test_guide_to_keys_leaves_only_the_new_keys_valid(guided: Guided, tmp_path: Path) -> None:
    """This test is last: the workers stay stopped, because exchanging tokens needs none."""
    old = guided.stack.environment["ENCRYPTION_KEYS"]

    def restart(names: Mapping[str, str]) -> None:
        guided.restart(workers=(), ENCRYPTION_KEYS=names["ENCRYPTION_KEYS"])

    follow(guided, "keys", tmp_path, {"restart": restart})
    assert old not in guided.stack.environment["ENCRYPTION_KEYS"]


def test_every_guide_is_listed_and_run() -> None:
    run = {"files", "models", "agents", "media", "observe", "command-line", "full-disk", "brokers", "keys"}
    pages = {page.stem: page.read_text() for page in GUIDES.glob("*.md") if page.stem != "README"}
    assert {name for name, text in pages.items() if _SHELL_BLOCK.search(text)} == run
    listed = re.findall(r"\]\(([\w-]+)\.md\)", (GUIDES / "README.md").read_text())
    assert set(listed) == set(pages)


def test_every_block_of_guides_and_readme_is_posix_shell() -> None:
    for page in (ROOT / "README.md", *GUIDES.glob("*.md")):
        for block in _SHELL_BLOCK.findall(page.read_text()):
            checked = subprocess.run(["sh", "-n"], input=block, capture_output=True, text=True, check=False)
            assert checked.returncode == 0, f"{page}: {checked.stderr}"


def follow(
    guided: Guided, guide: str, directory: Path, acts: Mapping[str, Callable[[Mapping[str, str]], None]]
) -> None:
    """Run the lines of a guide in order, and perform its operator's actions in between."""
    environment = guided.stack.environment if guide in _OF_OPERATORS else guided.at_a_shell()
    beginning = "\n".join(_SHELL_BLOCK.findall((GUIDES / "README.md").read_text()))
    pieces = _MEANWHILE.split((GUIDES / f"{guide}.md").read_text())
    lines = "\n".join(_SHELL_BLOCK.findall(pieces[0]))
    run_lines(environment, directory, f"set -a\n{beginning}\n{lines}")
    for act, text in zip(pieces[1::2], pieces[2::2], strict=True):
        acts[act](exported(directory))
        run_lines(
            guided.stack.environment, directory, "source names\n" + "\n".join(_SHELL_BLOCK.findall(text))
        )


def run_lines(environment: Mapping[str, str], directory: Path, lines: str) -> None:
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", f"{_KEEP_NAMES}\n{lines}"],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr


def exported(directory: Path) -> dict[str, str]:
    """Return the variables that the lines so far have exported."""
    done = subprocess.run(
        ["env", "-i", "bash", "-c", "source names; env -0"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split("=", 1) for line in done.stdout.split("\0") if "=" in line)
