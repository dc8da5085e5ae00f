"""Start the service's processes by fork from one process that has imported their modules.

A web process needs two seconds of CPU before it serves, a worker one, mostly for imports. A test runs the same command
in a separate process and session; only the modules are loaded already. `python -m
tests.support.processes.process_forks` is the process to fork: it reads no setting, opens no connection and has no
thread. Benchmarks and the tests of `deploy` start processes as production does.
"""

import atexit
import contextlib
import functools
import gc
import json
import os
import re
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import warnings
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from deploy.supervision.child_processes import Program, spawn
from deploy.supervision.launcher import bind_to_parent
from tests.support.processes import shared_artifacts

ROOT = shared_artifacts.ROOT
_OFFER = "quick_starts"
PRELOADED = (
    *("celery.apps.beat", "celery.apps.worker", "celery.bin.beat", "celery.bin.celery", "celery.bin.worker"),
    *("celery.concurrency.thread", "celery.worker.consumer", "kombu.transport.redis"),
    *("web.server.worker_class", "gunicorn.app.wsgiapp", "gunicorn.arbiter"),
    *(
        "deploy.cli.commands.blob_store",
        "deploy.cli.commands.deployments",
        "deploy.cli.commands.files",
        "deploy.cli.commands.identities",
        "deploy.cli.commands.organizations",
        "deploy.cli.first_run",
    ),
    *(
        "shared.a2a.behavior_registry",
        "shared.files.blobs.s3_store",
        "shared.files.blobs.s3",
        "shared.media.importing.fetch_job",
    ),
    *("shared.models.engine", "sqlalchemy.dialects.postgresql.psycopg2"),
    *("web.app", "workers.agents", "workers.handling", "workers.models", "workers.registry"),
)
REQUEST_BYTES = 1 << 17
MESSAGE = struct.Struct("q")  # a process id, and its status once it has ended


def start(program: Program) -> subprocess.Popen[bytes]:
    """Start a process of the service with a log: by fork in a run of pytest, otherwise as `spawn` does."""
    ignored, module = _read_command(program.command)
    is_known = bool(module) and (module[0] in {"gunicorn", "celery"} or module[0].startswith("tests."))
    if is_known and program.log is not None and "PYTEST_VERSION" in os.environ:
        return _Forked(program, ignored, module)
    return spawn(program)


def run(module: str, *arguments: str, seconds: float = 60.0) -> tuple[int, str]:
    """Run a module of the tests to its end; return its status, negative for a signal, and its output."""
    with TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        command = (sys.executable, "-m", module, *arguments)
        program = Program(name=module, command=command, environment=os.environ, directory=ROOT, log=log)
        process = start(program)
        try:
            return process.wait(seconds), log.read_text()
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"{module} did not end in {seconds} s: {log.read_text()}") from None


def _read_command(command: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Split `python [-W warning] -m module arguments` into warnings, and module with arguments."""
    if command[0] != sys.executable:
        return [], []
    rest, ignored = list(command[1:]), []
    while rest[:1] == ["-W"]:
        ignored.append(rest[1])
        del rest[:2]
    return ignored, rest[1:] if rest[:1] == ["-m"] else []


class _Forked(subprocess.Popen[bytes]):
    """A process whose parent is the forking process, which reports its exit status."""

    def __init__(self, program: Program, ignored: list[str], module: list[str]) -> None:
        assert program.log is not None
        request = {
            "module": module,
            "ignored": ignored,
            "environment": dict(program.environment),
            "directory": str(program.directory or Path.cwd()),
        }
        self.args = program.command
        self.returncode = None
        self.stdin = self.stdout = self.stderr = None
        self._status, theirs = os.pipe()
        self._reading = threading.Lock()
        with program.log.open("ab") as log:
            socket.send_fds(_origin(), [json.dumps(request).encode()], [log.fileno(), theirs])
        os.close(theirs)
        self.pid = self._read()

    def poll(self) -> int | None:
        """Return the status, or None while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; return the status, negative for a signal."""
        if self._look(timeout) is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def __del__(self) -> None:
        os.close(self._status)

    def _look(self, seconds: float | None) -> int | None:
        ended = select.poll()  # poll(), because select() fails above 1,024 file descriptors.
        ended.register(self._status, select.POLLIN)
        if self.returncode is None and ended.poll(None if seconds is None else seconds * 1000):
            with self._reading:
                if self.returncode is None:
                    self.returncode = os.waitstatus_to_exitcode(self._read())
        return self.returncode

    def _read(self) -> int:
        message = os.read(self._status, MESSAGE.size)
        assert message, "the process that others are forked from has died"
        number: int = MESSAGE.unpack(message)[0]
        return number


@functools.cache
def _origin() -> socket.socket:
    """Start a process that forks others; it and all of them end with this process."""
    address = shared_artifacts.find(_OFFER)
    if address is None:
        leaving = contextlib.ExitStack()
        atexit.register(leaving.close)
        address = start_origin(leaving)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(str(address))
    return connection


def start_origin(leaving: contextlib.ExitStack) -> Path:
    """Start the process with the imports, until `leaving`, and offer it; return its address.

    Neither it nor its forks are traced, because the service's processes have timeouts to keep.
    """
    untraced = {name: value for name, value in os.environ.items() if name != "COVERAGE_PROCESS_START"}
    address = Path(leaving.enter_context(TemporaryDirectory())) / "quick-starts"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(address))
        listener.listen()
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.processes.process_forks", str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            cwd=ROOT,
            env=untraced | {"PYTHONUNBUFFERED": "1"},
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    leaving.callback(process.communicate)  # The process ends when its standard input closes.
    shared_artifacts.offer(_OFFER, address)
    leaving.callback(shared_artifacts.withdraw, _OFFER)
    return address


def main() -> None:
    """Import everything, then fork for each request; a return from `_serve` is in a new process."""
    for module in PRELOADED:
        import_module(module)
    import_module("tests.support.processes.checked_processes").watch_applications()
    import_module("tests.support.web.checked_responses").prepare()
    import_module("tests.support.processes.lazy_url_rules").build_addresses_lazily()
    gc.collect()
    gc.freeze()
    _become(json.loads(_serve(_accept(socket.socket(fileno=int(sys.argv[1]))))))


def _accept(listener: socket.socket) -> socket.socket:
    """Fork for each test process that connects; a return is in the process that serves one of them."""
    signal.signal(
        signal.SIGCHLD, signal.SIG_IGN
    )  # No code waits for ended children, so let the kernel reap them.
    # Nothing writes to this pipe; its end ends the process.
    while listener in select.select([listener, sys.stdin], [], [])[0]:
        requests, _ = listener.accept()
        if os.fork() == 0:
            bind_to_parent(signal.SIGTERM)
            listener.close()
            return requests
        requests.close()
    sys.exit()


def _serve(requests: socket.socket) -> bytes:
    statuses: dict[int, int] = {}

    def report(*_: object) -> None:
        while statuses and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            descriptor = statuses.pop(ended[0])
            with contextlib.suppress(BrokenPipeError):  # No code waits for it any more.
                os.write(descriptor, MESSAGE.pack(ended[1]))
            os.close(descriptor)

    signal.signal(signal.SIGCHLD, report)
    while True:
        request, files, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 2)
        if not request:
            sys.exit()
        # Register the child before reporting, because it may end at once.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        log, status = files
        if (pid := os.fork()) == 0:
            _settle(requests, log, status, [*statuses.values()])
            return request
        statuses[pid] = status
        os.close(log)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


def _settle(requests: socket.socket, log: int, status: int, others: list[int]) -> None:
    """Set this process up as `spawn` would have started it, and report its id."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    os.setsid()
    bind_to_parent(signal.SIGKILL)
    requests.close()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, standard in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, standard)
    os.write(status, MESSAGE.pack(os.getpid()))
    for descriptor in (nothing, log, status, *others):
        os.close(descriptor)


def _become(request: dict[str, Any]) -> None:
    """Execute a command as `python -m` does, with its environment and directory."""
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    for action, _, message in (option.partition(":") for option in request["ignored"]):
        assert action == "ignore"
        warnings.filterwarnings("ignore", re.escape(message))
    sys.argv = request["module"]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
