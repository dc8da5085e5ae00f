"""Write the log: JSON lines to standard output, many at a time.

A request that wrote its own line would pay more for that than for most of its work. Lines are therefore kept and
written together, `FLUSH_SECONDS` later at the most; one at WARNING or above is written at once, after those before it.
A process writes what is left at its end. One that is killed (`kill -9`) loses the lines of its last `FLUSH_SECONDS`.
"""

import logging
import os
import sys
import threading
import weakref
from collections import deque
from typing import TextIO

from shared.observability.telemetry import LOST_LOG_LINES, JsonFormatter
from shared.runtime.periodic_thread import PeriodicThread

FLUSH_SECONDS = 0.05
MAX_BUFFERED_LINES = 1000
"""So many are kept while the output takes nothing; then each writer waits for it."""
_CHATTY = ("celery.beat", "celery.worker.strategy", "celery.app.trace")
_INDISCREET = ("urllib3",)


def configure_logging(level: str) -> None:
    """Send every log line of the process to standard output as JSON; call once at start."""
    handler = LineHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # An event's name says where it comes from; looking up the line that logs it costs as much as writing it.
    logging._srcfile = None  # noqa: SLF001 (as the logging documentation advises)
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False  # nobody reads them
    for name in _CHATTY:
        # A line for every sweep, which our own handlers log when there was something to do.
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in _INDISCREET:
        # Repeats whole URLs, whose paths and queries may be secret.
        logging.getLogger(name).setLevel(logging.ERROR)


class LineHandler(logging.StreamHandler[TextIO]):
    """Write lines to standard output; one that cannot be written is counted, and fails nothing."""

    def __init__(self) -> None:
        super().__init__(sys.stdout)
        self.begin()
        _handlers.add(self)

    def begin(self) -> None:
        """Begin without lines, as a forked process does: what it has is its parent's, and no thread came along."""
        self.writing = threading.RLock()  # a signal may interrupt the writer, and log
        self._lines: deque[str] = deque()
        self._writer = PeriodicThread(
            self.flush, name="log-lines", pause_seconds=FLUSH_SECONDS, has_work=lambda: self._lines
        )

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line for the writer; write it at once if it is a warning, or too many are kept."""
        try:
            self._lines.append(self.format(record))
        except Exception:  # noqa: BLE001 (a field may raise anything where it is shown)
            self.handleError(record)
            return
        kept = len(self._lines)
        if record.levelno >= logging.WARNING or kept >= MAX_BUFFERED_LINES or self._writer.is_stopping:
            self.flush()
        elif kept == 1:  # else the writer knows, or is about to look
            self._writer.wake()

    def flush(self) -> None:
        """Write what is kept."""
        with self.writing:
            lines = []
            while self._lines:  # one by one, as others go on adding
                lines.append(self._lines.popleft())
            if not lines:
                return
            try:
                self.stream.write("\n".join([*lines, ""]))
                self.stream.flush()
            except Exception:  # noqa: BLE001 (a closed pipe, a full disk, a stream that is closed already)
                LOST_LOG_LINES.inc(len(lines))

    def close(self) -> None:
        """Write what is kept, and every later line at once."""
        self._writer.stop()
        self.flush()
        super().close()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 (the standard library's)
        """Count the line; complaining on standard error would only fail, or fill a disk, once more."""
        LOST_LOG_LINES.inc()


_handlers: weakref.WeakSet[LineHandler] = weakref.WeakSet()


def _lock_writers() -> None:
    """Let nobody write while this process forks: in the child the lock of a stream would stay locked."""
    for handler in _handlers:
        handler.writing.acquire()


def _unlock_writers() -> None:
    for handler in _handlers:
        handler.writing.release()


def _reset_writers() -> None:
    for handler in _handlers:
        handler.begin()


os.register_at_fork(before=_lock_writers, after_in_parent=_unlock_writers, after_in_child=_reset_writers)
