"""Which store this is: a marker in the store itself, compared with the id that the database knows.

Nothing is written to a store, or found missing from it, unless it is the rows' own: a lost mount leaves an empty
directory below it, which would take uploads and forget deleted bytes. The guard looks before each act, and at the very
directory in which something was found missing, because the mount may go and come back in between. An unchanged marker
costs a `stat`.
"""

import threading
import time
from typing import NoReturn, Protocol
from uuid import UUID

from shared.files.blobs.base import BlobStoreUnavailable
from shared.observability.telemetry import get_logger

log = get_logger(__name__)

MARKER = "store-id"
REPEATED_LOG_SECONDS = 60.0


def parse_store_id(written: str) -> UUID:
    """Read what a marker holds. Raises BlobStoreUnavailable."""
    try:
        return UUID(written.strip())
    except ValueError:
        raise BlobStoreUnavailable("The marker of the store of file content cannot be read.") from None


class Marked(Protocol):
    """A store as it is before anyone knows whether it is the right one."""

    @property
    def address(self) -> str:
        """Where it is, for people."""

    def fingerprint(self) -> object | None:
        """Tell cheaply which marker is there: the same object as long as it is the same; None where there is none."""

    def find_id(self) -> UUID | None:
        """Read the marker; None where there is none. Raises BlobStoreUnavailable."""

    def write_id(self, store_id: UUID) -> None:
        """Write the marker, durably, where there is none. Raises BlobStoreUnavailable, StorageFull, StorageReadOnly."""

    def is_empty(self) -> bool:
        """Tell whether it holds no blob at all, staged or placed. Raises BlobStoreUnavailable."""

    def holds(self, version_id: UUID) -> bool:
        """Tell whether it holds a blob. Raises BlobStoreUnavailable."""

    def prepare(self) -> None:
        """Make what must be in it, once it was found to be the right one."""


class Identity(Protocol):
    """What the database knows of its store."""

    def resolve(self, found: Marked) -> UUID:
        """Give the id that the store must have; at the first use of all, mark the store and record the id.

        Raises ServiceUnavailable; BlobStoreUnavailable for a store that may not be taken for the right one.
        """


class Guard:
    """Refuses to let a store be used that is not the right one."""

    def __init__(self, marked: Marked, identity: Identity) -> None:
        """Look at nothing yet: neither store nor database need be there when a process starts."""
        self._marked = marked
        self._identity = identity
        self._known: object | None = None
        self._lock = threading.Lock()
        self._logged_at: float | None = None

    def require(self) -> None:
        """Raise BlobStoreUnavailable unless the right store is there now; Unavailable if that cannot be known."""
        if not self.recognizes(self._marked):
            with self._lock:
                if not self.recognizes(self._marked):
                    self._read()

    def recognizes(self, marked: Marked) -> bool:
        """Tell whether this is the store that was found to be the right one."""
        seen = marked.fingerprint()
        return seen is not None and seen == self._known

    def _read(self) -> None:
        self._known = None
        expected = self._identity.resolve(self._marked)
        seen = self._marked.fingerprint()
        found = self._marked.find_id()
        if found != expected:
            self._refuse(expected, found)
        self._marked.prepare()
        self._known = seen
        if self._logged_at is not None:
            self._logged_at = None
            log.info("blob_store.back", address=self._marked.address)

    def _refuse(self, expected: UUID, found: UUID | None) -> NoReturn:
        now = time.monotonic()
        if self._logged_at is None or now - self._logged_at > REPEATED_LOG_SECONDS:
            self._logged_at = now
            log.warning("blob_store.wrong", address=self._marked.address, expected=expected, found=found)
        raise BlobStoreUnavailable.wrong(
            "The store of file content is not the one of this database: is its volume mounted?"
        )
