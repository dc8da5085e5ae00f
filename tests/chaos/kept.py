"""A process of the service that is to run: noticed when it begins to work, and put anew in its place when it ended."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.support.processes.stack import Service

READY = " ready."
"""What a worker logs when it begins to take messages."""
MakeService = Callable[..., Service]


@dataclass(slots=True)
class Kept:
    """A process that is to run, how to make it anew, and where it may be armed to die."""

    kind: str
    make: MakeService
    points: Sequence[str]
    service: Service
    ready_at: float | None = None
    asleep_until: float | None = None

    def look(self) -> None:
        """Notice that it has begun to work."""
        if self.ready_at is None and self._is_ready():
            self.ready_at = time.monotonic()

    def renew(self, service: Service) -> None:
        """Put a new process in its place, and start it."""
        self.service, self.ready_at, self.asleep_until = service, None, None
        service.start()

    def _is_ready(self) -> bool:
        if self.service.port is not None:
            return self.service.is_answering()
        return self.kind == "beat" or self.service.has_logged(READY)
