"""A supervised process of the service: detected when it begins to work, and replaced when it has ended."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.support.processes.stack import Service

READY = " ready."
"""What a worker logs when it begins to take messages."""
MakeService = Callable[..., Service]


@dataclass(slots=True)
class SupervisedProcess:
    """A process that must run, its factory, and the fault points that it may be armed with."""

    kind: str
    make: MakeService
    points: Sequence[str]
    service: Service
    ready_at: float | None = None
    asleep_until: float | None = None

    def look(self) -> None:
        """Record that the process has begun to work, if it has."""
        if self.ready_at is None and self._is_ready():
            self.ready_at = time.monotonic()

    def renew(self, service: Service) -> None:
        """Replace the process by a new one, and start it."""
        self.service, self.ready_at, self.asleep_until = service, None, None
        service.start()

    def _is_ready(self) -> bool:
        if self.service.port is not None:
            return self.service.is_answering()
        return self.kind == "beat" or self.service.has_logged(READY)
