"""What the embedded servers have in common: one process, ended in order or as a crash would."""

import subprocess
from abc import ABC, abstractmethod

from deploy.supervision.child_processes import Program, kill, stop


class EmbeddedServer(ABC):
    """One server, once it has been started."""

    _process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def program(self) -> Program:
        """Describe the server for a supervisor; its files are prepared before every start."""

    def stop(self) -> None:
        """Stop the server in order, disconnecting its clients."""
        if self._process is not None:
            stop(self._process, self.program())

    def kill(self) -> None:
        """End the server as a crash would."""
        if self._process is not None:
            kill(self._process)
