"""What a client of files remembers: what was acknowledged, and nothing else.

Each file belongs to one client thread, which does one thing at a time to it, so that its state is known exactly:
every answer is either right or a violation. An operation whose answers were all lost is repeated until it is known.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID


@dataclass(frozen=True, kw_only=True)
class StoredVersion:
    """A version that was acknowledged, and the digest of what was sent."""

    id: str
    revision: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Link:
    """A read grant that was acknowledged; a later renewal of its file does not change it."""

    url: str
    version: StoredVersion
    expires_at: float


@dataclass(kw_only=True)
class StoredFile:
    """A file that was acknowledged, as its client knows it."""

    id: str
    versions: list[StoredVersion]
    expires_at: float | None = None  # seconds since the epoch
    is_deleted: bool = False
    links: list[Link] = field(default_factory=list)

    @property
    def current(self) -> StoredVersion:
        return self.versions[-1]

    def has_ended(self, at: float | None = None) -> bool:
        """Tell whether its content must be gone: for good once this is true."""
        now = time.time() if at is None else at
        return self.is_deleted or (self.expires_at is not None and self.expires_at <= now)


class Operations:
    """What became of each operation, by its operationId: the version or file it made or ended; None: refused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._effects: dict[UUID, str | None] = {}

    def acknowledge(self, operation: UUID, effect: str) -> None:
        """Note that an operation was answered with success."""
        with self._lock:
            self._effects[operation] = effect

    def refuse(self, operation: UUID) -> None:
        """Note that an operation was refused for good: it may have no effect."""
        with self._lock:
            self._effects[operation] = None

    def compare(self, recorded: Mapping[UUID, str]) -> Iterator[str]:
        """Compare the effects the clients know of with those the service has recorded."""
        for operation, effect in self._effects.items():
            if recorded.get(operation) != effect:
                yield f"operation {operation}: recorded {recorded.get(operation)}, answered {effect}"
        for operation in recorded.keys() - self._effects.keys():
            yield f"operation {operation}: recorded, but nobody asked for it"
