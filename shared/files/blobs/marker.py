"""The marker of a store: an id in the store itself, compared with the id that the database knows.

Content is written to a store, or reported as missing, only if the store's marker matches. An unmounted volume leaves
an empty directory, which would accept uploads and in which a removal would seem to succeed. The guard checks the
marker before each operation. If a blob is missing, the guard checks the directory in which the blob was searched,
because the volume may have been unmounted and mounted again in between. The check of an unchanged marker needs one
`stat`.
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
    """Return the id in a marker. Raises BlobStoreUnavailable."""
    try:
        return UUID(written.strip())
    except ValueError:
        raise BlobStoreUnavailable("The marker of the store of file content is not an id.") from None


class Marked(Protocol):
    """A store whose marker was not compared yet."""

    @property
    def address(self) -> str:
        """The address of the store, for people."""

    def fingerprint(self) -> object | None:
        """Return a fingerprint that changes if the marker changes; None if there is no marker."""

    def find_id(self) -> UUID | None:
        """Return the id in the marker; None without a marker. Raises BlobStoreUnavailable."""

    def write_id(self, store_id: UUID) -> None:
        """Write the marker, durably, if there is none. Raises BlobStoreUnavailable, StorageFull, StorageReadOnly."""

    def is_empty(self) -> bool:
        """Return whether the store has no blob, staged or placed. Raises BlobStoreUnavailable."""

    def holds(self, version_id: UUID) -> bool:
        """Return whether the store has a blob. Raises BlobStoreUnavailable."""

    def prepare(self) -> None:
        """Create the store's directories, after its marker was found to match."""


class Identity(Protocol):
    """The id that the database has recorded for a store."""

    def resolve(self, found: Marked) -> UUID:
        """Return the id that the store must have; at the first use ever, mark the store and record the id.

        Raises ServiceUnavailable; BlobStoreUnavailable for a store that must not be used.
        """


class Guard:
    """Refuses every use of a store without the right marker."""

    def __init__(self, marked: Marked, identity: Identity) -> None:
        """Create the guard without reading the marker, because a process may start while the store does not respond."""
        self._marked = marked
        self._identity = identity
        self._known: object | None = None
        self._lock = threading.Lock()
        self._logged_at: float | None = None

    def require(self) -> None:
        """Raise BlobStoreUnavailable unless the right store is there; ServiceUnavailable if that cannot be checked."""
        if not self.recognizes(self._marked):
            with self._lock:
                if not self.recognizes(self._marked):
                    self._read()

    def recognizes(self, marked: Marked) -> bool:
        """Return whether this store has the fingerprint of the right marker."""
        seen = marked.fingerprint()
        return seen is not None and seen == self._known

    def _read(self) -> None:
        self._known = None
        expected = self._identity.resolve(self._marked)
        # Take the fingerprint before the marker is read: if the mount changes in between, the fingerprint no longer
        # matches.
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
            "The store of file content is not the one of this database: check that its volume is mounted."
        )
