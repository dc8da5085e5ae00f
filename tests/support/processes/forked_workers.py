"""Collect the tests once, and fork the test processes from the one that did.

Importing and collecting ten thousand tests takes fifteen seconds of CPU, which each process of a run would spend.
Instead one process collects, with the arguments of the run, and waits; xdist starts `fork_client.py` where it would
start Python. If it cannot fork, for example because a test cannot be imported, each process starts as usual and
reports the error.
"""

import atexit
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import _pytest.config
import pytest
from _pytest.capture import CaptureManager
from _pytest.tmpdir import TempPathFactory
from execnet import XSpec

from deploy.supervision.launcher import bind_to_parent

_CLIENT = Path(__file__).with_name("fork_client.py")
_NO_WORKER = {"workerid": "origin", "workercount": 0, "testrunuid": "", "mainargv": sys.argv}


def collect_for_all(config: pytest.Config, specs: Sequence[XSpec], leaving: ExitStack) -> None:
    """Start the process that collects, until `leaving`, and have the run's processes start as its forks."""
    if config.invocation_params.dir != config.rootpath:
        return
    address = str(Path(leaving.enter_context(TemporaryDirectory())) / "forks")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen()
        origin = subprocess.Popen(
            [
                sys.executable,
                "-m",
                __name__,
                str(listener.fileno()),
                *map(str, config.invocation_params.args),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=config.rootpath,
            pass_fds=[listener.fileno()],
        )
    leaving.callback(origin.wait)
    leaving.callback(origin.terminate)
    for spec in specs:
        spec.python = shlex.join([sys.executable, "-E", "-s", "-S", str(_CLIENT), address])


class _Origin:
    """Forks a session after its tests are collected, instead of running them."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Fork for each client; return at once if the collection has something to report."""
        signal.signal(
            signal.SIGCHLD, signal.SIG_IGN
        )  # No code waits for ended children, so let the kernel reap them.
        while not session.testsfailed:
            client, _ = self._listener.accept()
            _, streams, _, _ = socket.recv_fds(client, 64, 3)
            if streams and os.fork() == 0:
                self._listener.close()
                client.send(b"forked")  # Keep the socket open as long as this process runs.
                _Fork(session).run(streams)
            for stream in streams:
                os.close(stream)
            client.close()
        return True


class _Fork:
    """Continues a collected session as a process of xdist."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._config = session.config
        self._plugins = session.config.pluginmanager.get_plugins()

    def run(self, streams: Sequence[int]) -> None:
        """Execute the commands from these streams, then exit."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        bind_to_parent(signal.SIGKILL)
        random.seed()
        self._capturing.stop_global_capturing()
        for stream, standard in zip(streams, (0, 1, 2), strict=True):
            os.dup2(stream, standard)
            os.close(stream)
        self._config.pluginmanager.register(self)
        _pytest.config._prepareconfig = lambda *_: self._config  # xdist sends this first.
        try:
            exec(eval(sys.stdin.readline()), {"__name__": "__main__"})
        finally:
            threading._shutdown()  # type: ignore[attr-defined] # as at the end of any process
            atexit._run_exitfuncs()
            sys.stderr.flush()
            os._exit(0)

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> int:
        """Report the collected tests to xdist, and run those it requests."""
        config._tmp_path_factory = TempPathFactory.from_config(config, _ispytest=True)  # type: ignore[attr-defined]
        self._capturing.start_global_capturing()
        self._capturing.suspend_global_capture()
        tell = partial(config.pluginmanager.subset_hook_caller, remove_plugins=self._plugins)
        tell("pytest_sessionstart")(session=self._session)
        tell("pytest_collection")(session=self._session)
        tell("pytest_collection_finish")(session=self._session)
        return self._run_tests()

    def _run_tests(self) -> int:
        """Run the tests, and what pytest does after them; xdist detects an error by the end of its channel."""
        session, hook = self._session, self._config.hook
        try:
            hook.pytest_runtestloop(session=session)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED if session.testsfailed else pytest.ExitCode.OK
        except (KeyboardInterrupt, pytest.exit.Exception):
            session.exitstatus = pytest.ExitCode.INTERRUPTED
            hook.pytest_keyboard_interrupt(excinfo=pytest.ExceptionInfo.from_current())
        finally:
            hook.pytest_sessionfinish(session=session, exitstatus=session.exitstatus)
            self._config._ensure_unconfigure()
        return session.exitstatus

    @property
    def _capturing(self) -> CaptureManager:
        found = self._config.pluginmanager.getplugin("capturemanager")
        assert isinstance(found, CaptureManager)
        return found


def main() -> None:
    """Collect as a process of xdist does, with the arguments of the run."""
    listener, *arguments = sys.argv[1:]
    bind_to_parent(signal.SIGTERM)
    config = _pytest.config._prepareconfig(arguments, None)
    import_module("xdist.remote").setup_config(config, None)  # pytest loads its plugins first.
    config.workerinput, config.workeroutput = _NO_WORKER, {}  # type: ignore[attr-defined]
    config.pluginmanager.register(_Origin(socket.socket(fileno=int(listener))))
    sys.exit(config.hook.pytest_cmdline_main(config=config))


if __name__ == "__main__":
    main()
