"""The base class of embedded servers: one process that can be stopped or killed."""

import subprocess
from abc import ABC, abstractmethod

from deploy.supervision.child_processes import Program, kill, stop


class EmbeddedServer(ABC):
    """A server process; `start` of a subclass sets `_process`."""

    _process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def program(self) -> Program:
        """Return the server as a supervisor's program."""

    def stop(self) -> None:
        """Shut the server down with its stop signal, which disconnects its clients; do nothing if it never started."""
        if self._process is not None:
            stop(self._process, self.program())

    def kill(self) -> None:
        """Kill the server with SIGKILL, as a crash would."""
        if self._process is not None:
            kill(self._process)
