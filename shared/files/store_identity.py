"""The ids of this database's blob stores. They are recorded at first use and compared with the stores' markers.

A database has one store, or two while content is moved (`maintenance/store_migration.py`). A process must know each
store in use: the store for new content, and the store from which content is still being moved.

Processes that use a store write its marker. A migration of the database never does, because it may run where the
volume is not mounted. An empty store is claimed at first use if the database has no content. A store that has content
but no marker is claimed if the database has rows of this content. In all other cases an operator must claim the store
(`quartermaster blob-store adopt`). If a process crashed after it wrote a marker and before its commit, the marker is
reused.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import delete, insert, select, text, update

from shared.db.database import Database, Session
from shared.db.schema import columns_of
from shared.files.blobs.base import BlobStoreUnavailable
from shared.files.blobs.marker import Marked
from shared.files.tables import blob_stores
from shared.identity.access.authorization import Actor, authorize_operation
from shared.identity.audit import record
from shared.ids import new_id
from shared.observability.telemetry import get_logger

log = get_logger(__name__)

SAMPLE = 10
_ONLY = 1
_SECOND = 2
# Check the oldest and the newest versions: the store of a copied service, which received uploads for an hour, may have
# only the newest.
_KNOWN = text(
    """
(SELECT version_id, state FROM blobs ORDER BY version_id LIMIT :sample)
UNION (SELECT version_id, state FROM blobs ORDER BY version_id DESC LIMIT :sample)
"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRecord:
    """The database's record of a store. `address` is the address at which the store was first used."""

    number: int
    store_id: UUID
    address: str
    is_used: bool
    created_at: datetime


class RecordedIdentity:
    """The recorded id of the only store (implements `marker.Identity`)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def resolve(self, found: Marked) -> UUID:
        """Return the recorded id. At first use, claim the store and record its id."""
        with self._database.autocommit() as session:
            known = list_stores(session)
        if not known:
            return self._claim(found)
        if sum(store.is_used for store in known) > 1:
            raise BlobStoreUnavailable.wrong(
                "The content of this database is in two stores: set SECOND_BLOB_STORE, or complete the move."
            )
        return next((store.store_id for store in known if store.is_used), known[0].store_id)

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


class FirstIdentity(RecordedIdentity):
    """The id of the first of two stores. Any store that the database knows may become the first."""

    def resolve(self, found: Marked) -> UUID:
        """Return the marker's id if the database knows it; otherwise the id that the store should have."""
        with self._database.autocommit() as session:
            known = {store.store_id: store for store in list_stores(session)}
            store_id = found.find_id()
            if store_id in known and not known[store_id].is_used:
                session.execute(
                    update(blob_stores).where(blob_stores.c.store_id == store_id).values(is_used=True)
                )
                log.info("blob_store.used", address=found.address, store_id=store_id)
        if not known:
            return self._claim(found)
        return store_id if store_id is not None and store_id in known else next(iter(known))


class SecondIdentity(RecordedIdentity):
    """The id of the second of two stores: a store that the database knows, or a new store, which must be empty."""

    def resolve(self, found: Marked) -> UUID:
        """Return the marker's id.

        If the store is new and empty, claim it in place of a store that is no longer used.
        """
        with self._database.transaction() as session:
            _lock(session)
            known = {store.store_id: store for store in list_stores(session)}
            store_id = found.find_id()
            if store_id is not None and store_id in known:
                return store_id
            unused = [store for store in known.values() if not store.is_used]
            if not known or len(known) - len(unused) > 1 or not found.is_empty():
                raise BlobStoreUnavailable.wrong(
                    "The store at SECOND_BLOB_STORE is not empty, and this database does not know it: check its mount."
                )
            store_id = _mark(found)
            session.execute(delete(blob_stores).where(~blob_stores.c.is_used))
            (used,) = (store.number for store in known.values() if store.is_used)
            _record(
                session, store_id, found.address, number=_SECOND if used == _ONLY else _ONLY, is_used=False
            )
        log.info("blob_store.claimed", address=found.address, store_id=store_id)
        return store_id


def list_stores(session: Session) -> list[StoreRecord]:
    """Return the records of the stores; an empty list before the first use."""
    columns = columns_of(StoreRecord, blob_stores)
    rows = session.execute(select(*columns).order_by(blob_stores.c.number))
    return [StoreRecord(**row._asdict()) for row in rows]


def find_store(session: Session) -> StoreRecord | None:
    """Return the record of the store in use; None before its first use."""
    return next((store for store in list_stores(session) if store.is_used), None)


def retire_store(session: Session, *, actor: Actor, moved_to: Marked) -> None:
    """Record that all content was moved to one store, so processes no longer need the other.

    Raises PermissionDenied.
    """
    authorize_operation(actor)
    _lock(session)
    store_id = moved_to.find_id()
    others = update(blob_stores).where(blob_stores.c.store_id != store_id, blob_stores.c.is_used)
    if store_id is not None and session.execute(others.values(is_used=False)).rowcount:
        record(session, actor, "blob_store.moved", store_id)


def adopt_store(session: Session, *, actor: Actor, marked: Marked) -> StoreRecord:
    """Claim a store for the database, whatever its marker and the record say. An operator must have checked the store.

    Raises PermissionDenied, BlobStoreUnavailable, StorageFull, StorageReadOnly.
    """
    authorize_operation(actor)
    _lock(session)
    store_id = _mark(marked)
    known = find_store(session)
    if known is None:
        _record(session, store_id, marked.address)
    else:
        if sum(store.is_used for store in list_stores(session)) > 1:
            raise BlobStoreUnavailable.wrong(
                "The content of this database is in two stores: complete the move first."
            )
        session.execute(delete(blob_stores).where(~blob_stores.c.is_used))
        session.execute(update(blob_stores).values(store_id=store_id, address=marked.address))
    record(session, actor, "blob_store.adopted", store_id, replaced=None if known is None else known.store_id)
    adopted = find_store(session)
    if adopted is None:
        raise RuntimeError("the row just written is not there")
    return adopted


def _lock(session: Session) -> None:
    # Lock against other writers but not against readers: two processes that start at once must not both claim a store.
    session.execute(text("LOCK TABLE blob_stores IN EXCLUSIVE MODE"))


def _mark(marked: Marked) -> UUID:
    """Return the id in the store's marker. If the store has no marker, write one first."""
    # Reuse the marker of a process that crashed before its commit, because an existing marker is never overwritten.
    store_id = marked.find_id()
    if store_id is None:
        marked.write_id(new_id())
        store_id = marked.find_id()
    if store_id is None:
        raise BlobStoreUnavailable("The store of file content could not be marked.")
    return store_id


def _record(
    session: Session, store_id: UUID, address: str, *, number: int = _ONLY, is_used: bool = True
) -> None:
    row = {"number": number, "store_id": store_id, "address": address, "is_used": is_used}
    session.execute(insert(blob_stores).values(row))


def _require_ours(session: Session, marked: Marked) -> None:
    """Raise an error if the store lacks the database's content or has other content."""
    sample = session.execute(_KNOWN, {"sample": SAMPLE}).all()
    promised = [row.version_id for row in sample if row.state == "live"]
    # Accept a store that has half of the checked content: after a restore some may be missing, which the audit reports.
    if promised:
        is_ours = 2 * sum(map(marked.holds, promised)) >= len(promised)
    else:
        is_ours = marked.is_empty() or any(marked.holds(row.version_id) for row in sample)
    if not is_ours:
        log.warning("blob_store.foreign", address=marked.address)
        raise BlobStoreUnavailable.wrong(
            "The store of file content lacks the content that this database knows: check that its volume is mounted."
        )
