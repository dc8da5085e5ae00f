"""`make up` with small stand-ins for the service's processes: it reports readiness, and leaves no process."""

import contextlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from deploy.embedded.ports import find_free_port
from tests.support.processes.stack import wait_until

PATIENCE_SECONDS = 60
SECRETS = re.compile(r"(?:sv[a-z]|whsec)_[A-Za-z0-9+/=]{20,}")

RELEASE = """
    import os, psycopg2
    connection = psycopg2.connect(os.environ["MIGRATIONS_DATABASE_URL"])
    with connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS releases (at timestamptz)")
        cursor.execute("GRANT SELECT ON releases TO quartermaster_app")
        cursor.execute("INSERT INTO releases VALUES (now())")
"""
WEB = """
    import http.server, os, psycopg2
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            connection = psycopg2.connect(os.environ["DATABASE_URL"])
            with connection, connection.cursor() as cursor:
                cursor.execute("SELECT count(*) FROM releases")
                body = str(cursor.fetchone()[0]).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)
    http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""
IDLE = "import time; time.sleep(600)"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a checkout with stand-ins as its processes."""
    for name, code in (("release", RELEASE), ("web", WEB), ("worker-files", IDLE), ("beat", IDLE)):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(code))
        with (tmp_path / "Procfile").open("a") as procfile:
            procfile.write(f"{name}: python {name}.py\n")
    return tmp_path


class Copy:
    """One run of the stack over a home."""

    def __init__(self, root: Path | None, home: Path, port: int, *, has_owner: bool = False) -> None:
        self.home, self.port = home, port
        code = "from pathlib import Path; from deploy.embedded import up; "
        bootstrap = "up.BOOTSTRAP" if has_owner else "('true',)"
        code += f"up.main(root=Path({str(root)!r}), bootstrap={bootstrap})" if root else "up.main()"
        environment = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            # QM_HOME also marks the processes of this run: children inherit it (`_belongs_to`).
            env=environment | {"QM_HOME": str(home), "PORT": str(port)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def read_until_ready(self) -> str:
        assert self.process.stdout is not None
        seen = ""
        for line in self.process.stdout:
            seen += line
            if line == f"Quartermaster is ready at http://127.0.0.1:{self.port}\n":
                return seen
        raise AssertionError(f"never ready:\n{seen}")

    def get(self, path: str = "/") -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}") as answer:
            return str(answer.read().decode())

    def processes(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if _belongs_to(process, self.home)]

    def end(self, number: signal.Signals) -> int:
        assert self.process.stdout is not None
        self.process.send_signal(number)
        # Read to the end: a full pipe would block the process that is to stop.
        self.process.stdout.read()
        return self.process.wait(PATIENCE_SECONDS)


FOREIGN = {
    "DATABASE_URL",
    "MIGRATIONS_DATABASE_URL",
    "REDIS_URL",
    "MODELS_REDIS_URL",
    "BLOB_STORE",
    "ENCRYPTION_KEYS",
    "BASE_URL",
    "WEB_BIND",
    "MAKELEVEL",
}


def _belongs_to(process: psutil.Process, home: Path) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.environ().get("QM_HOME") == str(home)
    except psutil.Error:
        return False


@pytest.fixture
def copies() -> Iterator[list[Copy]]:
    """Yield the runs of a test, all of which are ended after it."""
    started: list[Copy] = []
    yield started
    for copy in started:
        copy.process.kill()
        if copy.process.stdout is not None:
            copy.process.stdout.close()
        copy.process.wait()


def start(copies: list[Copy], root: Path, name: str) -> Copy:
    copies.append(Copy(root, root / name, find_free_port()))
    return copies[-1]


def assert_nothing_left(copy: Copy) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while copy.processes() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert copy.processes() == []


def test_terminal_gets_a_summary_and_logs_go_to_files(root: Path) -> None:
    ours, theirs = pty.openpty()
    code = (
        "from pathlib import Path; from deploy.embedded import up; up.main("
        f"root=Path({str(root)!r}), bootstrap=('echo', '{{\\\"event\\\": 1}}'), link=lambda *_: 'http://here/console/in#svl_1')"
    )
    environment = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment | {"QM_HOME": str(root / "home"), "PORT": str(find_free_port())},
        stdout=theirs,
        stderr=subprocess.STDOUT,
        # Not the session of the tests: the process must not take their terminal.
        start_new_session=True,
    )
    os.close(theirs)
    seen = ""
    try:
        while "Ctrl-C" not in seen:
            seen += os.read(ours, 1 << 16).decode()
    finally:
        process.terminate()
        with contextlib.suppress(OSError):  # the last writer of the terminal has ended
            while os.read(ours, 1 << 16):
                pass
        assert process.wait(PATIENCE_SECONDS) == 0
        os.close(ours)
    for text in ("Postgres", "Quartermaster is ready at http://127.0.0.1", "http://here/console/in#svl_1",
                 "credentials.json", "console link"):  # fmt: skip
        assert text in seen
    steps = [line.partition("✓")[2] for line in seen.splitlines() if "✓" in line]
    assert len(steps) == len(set(steps)) >= 4, steps
    logs = {path.name: path.read_text() for path in (root / "home/logs").iterdir()}
    assert "event" in logs["bootstrap.log"]
    # Output of programs goes to the logs only.
    assert "event" not in seen
    assert not any("svl_" in text for text in logs.values())


def test_it_announces_itself_and_stops_without_leaving_a_process(root: Path, copies: list[Copy]) -> None:
    copy = start(copies, root, "home")
    copy.read_until_ready()
    assert copy.get() == "1"
    assert len(copy.processes()) >= 5
    assert copy.end(signal.SIGTERM) == 0
    assert copy.processes() == []


def test_kill_leaves_no_process_and_the_next_start_has_the_data(root: Path, copies: list[Copy]) -> None:
    copy = start(copies, root, "home")
    copy.read_until_ready()
    secrets = (copy.home / "secrets").read_text()
    assert copy.end(signal.SIGKILL) == -signal.SIGKILL
    assert_nothing_left(copy)
    again = start(copies, root, "home")
    again.read_until_ready()
    assert again.get() == "2"
    assert (again.home / "secrets").read_text() == secrets
    assert (again.home / "secrets").stat().st_mode & 0o777 == 0o600


def test_everything_killed_at_once_comes_back_too(root: Path, copies: list[Copy]) -> None:
    copy = start(copies, root, "home")
    copy.read_until_ready()
    for process in [psutil.Process(copy.process.pid), *copy.processes()]:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    copy.process.wait()
    again = start(copies, root, "home")
    again.read_until_ready()
    assert again.get() == "2"


def test_two_copies_run_side_by_side(root: Path, copies: list[Copy]) -> None:
    first, second = start(copies, root, "first"), start(copies, root, "second")
    first.read_until_ready()
    second.read_until_ready()
    assert first.end(signal.SIGINT) == 0
    assert second.get() == "1"


def test_a_second_copy_over_the_same_home_is_refused(root: Path, copies: list[Copy]) -> None:
    first = start(copies, root, "home")
    first.read_until_ready()
    second = start(copies, root, "home")
    output, _ = second.process.communicate(timeout=PATIENCE_SECONDS)
    assert second.process.returncode == 1
    assert "Another Quartermaster uses" in output
    assert first.get() == "1"


def test_a_port_that_is_taken_is_said_and_nothing_is_started(root: Path, copies: list[Copy]) -> None:
    with socket.socket() as occupant:
        occupant.bind(("127.0.0.1", 0))
        occupant.listen()
        port = occupant.getsockname()[1]
        copies.append(Copy(root, root / "home", port))
        output, _ = copies[-1].process.communicate(timeout=PATIENCE_SECONDS)
    assert copies[-1].process.returncode == 1
    assert f"Port {port} is not free" in output
    assert copies[-1].processes() == []


def test_a_process_that_cannot_start_ends_everything(root: Path, copies: list[Copy]) -> None:
    (root / "beat.py").write_text("raise SystemExit('no schedule')")
    copy = start(copies, root, "home")
    output, _ = copy.process.communicate(timeout=PATIENCE_SECONDS)
    assert copy.process.returncode == 1
    assert "beat cannot start" in output
    assert copy.processes() == []


def command_beside(home: Path, *words: str) -> str:
    """Run a command with QM_HOME of the running copy as its only setting."""
    environment = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    ran = subprocess.run(
        [str(Path(sys.executable).with_name("quartermaster")), *words],
        env=environment | {"QM_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    return ran.stdout


def _is_well(port: str) -> bool:
    with (
        contextlib.suppress(OSError),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=60) as answer,
    ):
        return bool(answer.status == 200)
    return False


def test_the_service_itself_starts_and_hands_over_its_first_credentials_once(
    root: Path, copies: list[Copy]
) -> None:
    port = find_free_port()
    copies.append(Copy(None, root / "home", port))
    printed = copies[-1].read_until_ready()
    assert '"status":"ok"' in copies[-1].get("/readyz")
    ports = re.findall(r"(\d+) \((?:web|worker-[a-z]+|beat)\)", printed)
    assert len(set(ports)) == 8, printed
    for operations_port in ports:
        wait_until(partial(_is_well, operations_port), f"a process answers at {operations_port}")
    credentials = copies[-1].home / "credentials.json"
    assert credentials.stat().st_mode & 0o777 == 0o600
    first = credentials.read_text()
    assert len(SECRETS.findall(first)) == 4
    assert str(credentials) in printed
    assert json.loads(first)["organizationId"] in command_beside(copies[-1].home, "organizations", "list")
    assert (copies[-1].home / "settings.json").stat().st_mode & 0o777 == 0o600
    copies[-1].process.send_signal(signal.SIGTERM)
    printed += copies[-1].process.communicate(timeout=PATIENCE_SECONDS)[0]
    assert copies[-1].process.returncode == 0
    assert SECRETS.findall(printed) == []
    logs = [path for path in copies[-1].home.rglob("*.log*") if path.is_file()]
    assert logs
    assert [path for path in logs if SECRETS.search(path.read_text(errors="replace"))] == []
    # The next start runs bootstrap too; its other processes may be stand-ins.
    copies.append(Copy(root, root / "home", port, has_owner=True))
    copies[-1].read_until_ready()
    assert credentials.read_text() == first
    assert copies[-1].end(signal.SIGTERM) == 0
