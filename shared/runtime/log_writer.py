"""Write the log as JSON lines to standard output, in batches of lines.

Writing each line separately in its request would cost more than most of the request's other work. So lines are
buffered and written together after at most FLUSH_SECONDS. A line at level WARNING or above is written immediately,
after the buffered lines. A process writes its buffer when it ends. A process that is killed (`kill -9`) loses the
lines of its last FLUSH_SECONDS.
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
"""Lines buffered while the output blocks; beyond that, each logging thread waits for it."""
_CHATTY = ("celery.beat", "celery.worker.strategy", "celery.app.trace")
_INDISCREET = ("urllib3",)


def configure_logging(level: str) -> None:
    """Send every log line of the process to standard output as JSON. Call this function once at start."""
    handler = LineHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Disable the lookup of the calling line, which costs as much as writing; the event's name shows its origin.
    logging._srcfile = None  # noqa: SLF001 (as the logging documentation advises)
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False  # unused in JSON lines
    for name in _CHATTY:
        # Silence these loggers, which log a line for every sweep; the handlers of jobs log sweeps that changed
        # rows.
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in _INDISCREET:
        # Silence this logger, which logs whole URLs, with paths and queries that may be secret.
        logging.getLogger(name).setLevel(logging.ERROR)


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes lines to standard output. A line that cannot be written is counted; no error is raised."""

    def __init__(self) -> None:
        super().__init__(sys.stdout)
        self.begin()
        _handlers.add(self)

    def begin(self) -> None:
        """Start with an empty buffer, also in a forked process: the parent process writes its buffered lines itself."""
        self.writing = threading.RLock()  # reentrant: a signal handler may log while the writer holds it
        self._lines: deque[str] = deque()
        self._writer = PeriodicThread(
            self.flush, name="log-lines", pause_seconds=FLUSH_SECONDS, has_work=lambda: self._lines
        )

    def emit(self, record: logging.LogRecord) -> None:
        """Buffer a line. If it is a warning or the buffer is full, write the buffer immediately."""
        try:
            self._lines.append(self.format(record))
        except Exception:  # noqa: BLE001 (a field's __str__ may raise anything)
            self.handleError(record)
            return
        kept = len(self._lines)
        if record.levelno >= logging.WARNING or kept >= MAX_BUFFERED_LINES or self._writer.is_stopping:
            self.flush()
        elif kept == 1:  # otherwise the writer was woken already
            self._writer.wake()

    def flush(self) -> None:
        """Write the buffered lines."""
        with self.writing:
            lines = []
            while self._lines:  # remove lines singly, because other threads keep appending
                lines.append(self._lines.popleft())
            if not lines:
                return
            try:
                self.stream.write("\n".join([*lines, ""]))
                self.stream.flush()
            except Exception:  # noqa: BLE001 (a closed pipe, a full disk, a stream that is closed already)
                LOST_LOG_LINES.inc(len(lines))

    def close(self) -> None:
        """Write the buffer. Later lines are written immediately."""
        self._writer.stop()
        self.flush()
        super().close()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 (the standard library's)
        """Count the lost line. Do not report it on standard error, which could fail again or fill a disk."""
        LOST_LOG_LINES.inc()


_handlers: weakref.WeakSet[LineHandler] = weakref.WeakSet()


def _lock_writers() -> None:
    """Wait until no thread writes, before a fork: otherwise the stream's lock would stay locked in the child."""
    for handler in _handlers:
        handler.writing.acquire()


def _unlock_writers() -> None:
    for handler in _handlers:
        handler.writing.release()


def _reset_writers() -> None:
    for handler in _handlers:
        handler.begin()


# Hold the locks during the fork. The child creates new locks, because the parent's threads do not exist in it.
os.register_at_fork(before=_lock_writers, after_in_parent=_unlock_writers, after_in_child=_reset_writers)
