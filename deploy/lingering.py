"""gunicorn's threaded worker, whose threads wait a moment for the next request of a connection they have answered.

Between two requests a connection is otherwise handed to the accepting thread and back, which costs an eighth of what a
model call costs the front. Nobody has to wait for it: a thread lingers only while no connection is in want of one.
"""

from __future__ import annotations

import select
from typing import Any

from gunicorn.workers.gthread import ThreadWorker  # type: ignore[import-untyped]

LINGER_MILLISECONDS = 2


class LingeringWorker(ThreadWorker):  # type: ignore[misc]
    """The worker class of the front."""

    def handle(self, conn: Any) -> Any:
        """Answer requests of a connection as long as they follow each other closely."""
        answered = super().handle(conn)
        while answered is True and self._continues(conn):
            answered = super().handle(conn)
        return answered

    def _continues(self, conn: Any) -> bool:
        is_wanted = self.tpool._work_queue.qsize() > 0  # noqa: SLF001 (nobody else knows)
        if is_wanted or not self.alive or conn.is_http2:
            return False
        waiting = select.poll()
        waiting.register(conn.sock, select.POLLIN)
        return bool(waiting.poll(LINGER_MILLISECONDS))
