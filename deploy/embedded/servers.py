"""The base class of embedded servers. A server is one process that can be stopped or killed."""

import subprocess
from abc import ABC, abstractmethod

from deploy.supervision.child_processes import Program, kill, stop


class EmbeddedServer(ABC):
    """A server process. The method `start` of a subclass sets `_process`."""

    _process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def program(self) -> Program:
        """Return the server as a program that a supervisor can run."""

    def stop(self) -> None:
        """Stop the server with its stop signal, which disconnects clients. Do nothing if the server was not started."""
        if self._process is not None:
            stop(self._process, self.program())

    def kill(self) -> None:
        """Kill the server with SIGKILL, to simulate a crash."""
        if self._process is not None:
            kill(self._process)
