"""The ids of this database's blob stores: recorded at their first use, looked up whenever they are in doubt.

There is one; while content is moved, there are two (`moving`). A process must know every store that is used: the one
that new content goes to, and one from which not everything was moved.

A process that uses the store marks it, never a migration, which may run where the volume is not mounted. An empty
store and a database without content are joined at the first use; so are, once, unmarked content and the rows that
know it. Anything else needs an operator (`quartermaster blob-store adopt`). A marker without a row, left by a death
before the commit, is taken up.
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

    number: int
    store_id: UUID
    address: str
    is_used: bool
    created_at: datetime


class RecordedIdentity:
    """The id that the database knows (`marker.Identity`), of the only store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def resolve(self, found: Marked) -> UUID:
        """Look the id up; at the first use, claim the store."""
        with self._database.autocommit() as session:
            known = list_stores(session)
        if not known:
            return self._claim(found)
        if sum(store.is_used for store in known) > 1:
            raise BlobStoreUnavailable.wrong(
                "The content of this database lies in two stores: set SECOND_BLOB_STORE, or end the move."
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
    """The id of the first of two stores: any that the database knows, and from now on it is used."""

    def resolve(self, found: Marked) -> UUID:
        """Look the marker's id up."""
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
    """The id of the second of two stores: one that the database knows, or a new one, which must be empty."""

    def resolve(self, found: Marked) -> UUID:
        """Look the marker's id up; claim an empty store, in the place of one that is no longer used."""
        with self._database.transaction() as session:
            _lock(session)
            known = {store.store_id: store for store in list_stores(session)}
            store_id = found.find_id()
            if store_id is not None and store_id in known:
                return store_id
            unused = [store for store in known.values() if not store.is_used]
            if not known or len(known) - len(unused) > 1 or not found.is_empty():
                raise BlobStoreUnavailable.wrong(
                    "The store at SECOND_BLOB_STORE is not known to this database, and not empty: is it mounted?"
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
    """List what the database knows of its stores; none before the first use."""
    columns = columns_of(StoreRecord, blob_stores)
    rows = session.execute(select(*columns).order_by(blob_stores.c.number))
    return [StoreRecord(**row._asdict()) for row in rows]


def find_store(session: Session) -> StoreRecord | None:
    """Find what the database knows of the store that is used; None before its first use."""
    return next((store for store in list_stores(session) if store.is_used), None)


def retire_store(session: Session, *, actor: Actor, moved_to: Marked) -> None:
    """Record that everything was moved: no process needs to know another store. Raises PermissionDenied."""
    authorize_operation(actor)
    _lock(session)
    store_id = moved_to.find_id()
    others = update(blob_stores).where(blob_stores.c.store_id != store_id, blob_stores.c.is_used)
    if store_id is not None and session.execute(others.values(is_used=False)).rowcount:
        record(session, actor, "blob_store.moved", store_id)


def adopt_store(session: Session, *, actor: Actor, marked: Marked) -> StoreRecord:
    """Take a store for the database's own, whatever either said before: an operator has looked.

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
            raise BlobStoreUnavailable.wrong("The content of this database lies in two stores: end the move.")
        session.execute(delete(blob_stores).where(~blob_stores.c.is_used))
        session.execute(update(blob_stores).values(store_id=store_id, address=marked.address))
    record(session, actor, "blob_store.adopted", store_id, replaced=None if known is None else known.store_id)
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


def _record(
    session: Session, store_id: UUID, address: str, *, number: int = _ONLY, is_used: bool = True
) -> None:
    row = {"number": number, "store_id": store_id, "address": address, "is_used": is_used}
    session.execute(insert(blob_stores).values(row))


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
