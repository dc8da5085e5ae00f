"""The `quartermaster` command as a process, forked from one that has imported it (`process_forks.py`).

The import takes a second of CPU, and a command itself a tenth of that.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory

from deploy.cli import main as cli
from deploy.supervision.child_processes import Program
from tests.support.processes import process_forks

_COMPLAINT, _PREPARATION = "COMPLAINTS_GO_TO", "PREPARED_BY"


class CommandLine:
    """One run of the command; `prepare` is code that it runs first."""

    def __init__(self, environment: Mapping[str, str], *arguments: str, prepare: str = "") -> None:
        self._directory = TemporaryDirectory()
        self._output, self._complaint = (Path(self._directory.name) / name for name in ("out", "err"))
        program = Program(
            name="quartermaster",
            command=(sys.executable, "-m", __name__, *arguments),
            environment={
                **os.environ,
                **environment,
                _COMPLAINT: str(self._complaint),
                _PREPARATION: prepare,
            },
            directory=process_forks.ROOT,
            log=self._output,
        )
        self._process: Popen[bytes] = process_forks.start(program)

    def finish(self, *, seconds: float = 60.0) -> tuple[int, str, str]:
        """Wait for the end; return exit status, standard output and standard error."""
        with self._directory:
            status = self._process.wait(seconds)
            return status, self._output.read_text(), self._complaint.read_text()


def main() -> None:
    """Run the command in this process."""
    complaint = os.open(os.environ.pop(_COMPLAINT), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(complaint, 2)
    exec(os.environ.pop(_PREPARATION), {})
    sys.argv[0] = "quartermaster"
    cli.main()


if __name__ == "__main__":
    main()
