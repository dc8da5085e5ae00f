"""What a client of files remembers: acknowledged operations and nothing else.

Each file belongs to one client thread, which performs one operation at a time on it. Its state is therefore known
exactly, and every response is either correct or a violation. If all responses to an operation were lost, the client
retries until its result is known.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID


@dataclass(frozen=True, kw_only=True)
class StoredVersion:
    """An acknowledged version, and the digest of the content sent."""

    id: str
    revision: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Link:
    """An acknowledged read grant; a later renewal of its file does not change it."""

    url: str
    version: StoredVersion
    expires_at: float


@dataclass(kw_only=True)
class StoredFile:
    """An acknowledged file, as its client knows it."""

    id: str
    versions: list[StoredVersion]
    expires_at: float | None = None  # seconds since the epoch
    is_deleted: bool = False
    links: list[Link] = field(default_factory=list)

    @property
    def current(self) -> StoredVersion:
        return self.versions[-1]

    def has_ended(self, at: float | None = None) -> bool:
        """Return whether the content must be gone; once True, this stays True."""
        now = time.time() if at is None else at
        return self.is_deleted or (self.expires_at is not None and self.expires_at <= now)


class Operations:
    """The result of each operation by operationId: the version or file that it created or ended, or None if refused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._effects: dict[UUID, str | None] = {}

    def acknowledge(self, operation: UUID, effect: str) -> None:
        """Record that an operation succeeded."""
        with self._lock:
            self._effects[operation] = effect

    def refuse(self, operation: UUID) -> None:
        """Record that an operation was refused permanently: it must have no effect."""
        with self._lock:
            self._effects[operation] = None

    def compare(self, recorded: Mapping[UUID, str]) -> Iterator[str]:
        """Yield differences between the effects the clients know and those the service has recorded."""
        for operation, effect in self._effects.items():
            if recorded.get(operation) != effect:
                yield f"operation {operation}: recorded {recorded.get(operation)}, answered {effect}"
        for operation in recorded.keys() - self._effects.keys():
            yield f"operation {operation}: recorded, but nobody asked for it"
