"""The id of this database's one blob store: recorded at its first use, looked up whenever it is in doubt.

A process that uses the store marks it, never a migration, which may run where the volume is not mounted. An empty
store and a database without content are joined at the first use; so are, once, unmarked content and the rows that
know it. Anything else needs an operator (`quartermaster blob-store adopt`). A marker without a row, left by a death
before the commit, is taken up.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import insert, select, text, update

from shared.database import Database, Session
from shared.files.blobs.base import BlobStoreUnavailable
from shared.files.blobs.marker import Marked
from shared.files.tables import blob_stores
from shared.identity.audit import record
from shared.identity.authorization import Actor, authorize_operation
from shared.ids import new_id
from shared.telemetry import get_logger

log = get_logger(__name__)

SAMPLE = 10
_ONLY = 1
# The oldest and the newest: a twin that took uploads for an hour holds only the latter.
_KNOWN = text(
    """
(SELECT version_id, state FROM blobs ORDER BY version_id LIMIT :sample)
UNION (SELECT version_id, state FROM blobs ORDER BY version_id DESC LIMIT :sample)
"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRecord:
    """What the database knows of its store; `address` is where it was first used."""

    store_id: UUID
    address: str
    created_at: datetime


class RecordedIdentity:
    """The id that the database knows (`marker.Identity`)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def resolve(self, found: Marked) -> UUID:
        """Look the id up; at the first use, claim the store."""
        with self._database.autocommit() as session:
            known = find_store(session)
        return self._claim(found) if known is None else known.store_id

    def _claim(self, marked: Marked) -> UUID:
        with self._database.transaction() as session:
            _lock(session)
            known = find_store(session)
            if known is not None:
                return known.store_id
            _require_ours(session, marked)
            store_id = _mark(marked)
            _record(session, store_id, marked.address)
        log.info("blob_store.claimed", address=marked.address, store_id=store_id)
        return store_id


def find_store(session: Session) -> StoreRecord | None:
    """Find what the database knows of its store; None before its first use."""
    row = session.execute(
        select(blob_stores.c.store_id, blob_stores.c.address, blob_stores.c.created_at)
    ).one_or_none()
    return None if row is None else StoreRecord(**row._asdict())


def adopt_store(session: Session, *, by: Actor, marked: Marked) -> StoreRecord:
    """Take a store for the database's own, whatever either said before: an operator has looked.

    Raises PermissionDenied, BlobStoreUnavailable, StorageFull, StorageReadOnly.
    """
    authorize_operation(by)
    _lock(session)
    store_id = _mark(marked)
    known = find_store(session)
    if known is None:
        _record(session, store_id, marked.address)
    else:
        session.execute(update(blob_stores).values(store_id=store_id, address=marked.address))
    record(session, by, "blob_store.adopted", store_id, replaced=None if known is None else known.store_id)
    adopted = find_store(session)
    if adopted is None:
        raise RuntimeError("the row just written is not there")
    return adopted


def _lock(session: Session) -> None:
    session.execute(text("LOCK TABLE blob_stores IN EXCLUSIVE MODE"))


def _mark(marked: Marked) -> UUID:
    """Give the store's id, marking it where it has none."""
    store_id = marked.find_id()
    if store_id is None:
        marked.write_id(new_id())
        store_id = marked.find_id()
    if store_id is None:
        raise BlobStoreUnavailable("The store of file content could not be marked.")
    return store_id


def _record(session: Session, store_id: UUID, address: str) -> None:
    session.execute(insert(blob_stores).values(number=_ONLY, store_id=store_id, address=address))


def _require_ours(session: Session, marked: Marked) -> None:
    """Refuse a store without its content, or with somebody else's."""
    sample = session.execute(_KNOWN, {"sample": SAMPLE}).all()
    promised = [row.version_id for row in sample if row.state == "live"]
    if promised:
        is_ours = 2 * sum(map(marked.holds, promised)) >= len(promised)
    else:
        is_ours = marked.is_empty() or any(marked.holds(row.version_id) for row in sample)
    if not is_ours:
        log.warning("blob_store.foreign", address=marked.address)
        raise BlobStoreUnavailable.wrong(
            "The store of file content does not hold what this database knows: is its volume mounted?"
        )
