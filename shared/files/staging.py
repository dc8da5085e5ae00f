"""Receive content into the store and commit it: the first half of every write.

Bytes are durable before the transaction that gives them an owner. Before that commit there are only staged bytes, which
a sweep may delete; after it nothing can be lost. A worker places the bytes (`lifecycle/placement.py`), which changes
nothing that a reader sees.

If the process crashes before the commit, its staged bytes are unlocked (or its `receiving` row outlives the lease) and
a sweep deletes them. After a commit with unknown outcome the same sweep asks the database. After the commit the row
waits for a worker, whether or not a message was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any, Protocol
from uuid import UUID

import psycopg2
from sqlalchemy import func, insert, literal, text

from shared import failpoints
from shared.db.database import Database, Session
from shared.db.statements import Prepared
from shared.errors import DomainError, ServiceUnavailable
from shared.files.access import AuthorityLost
from shared.files.blobs.base import UNKNOWN_UPLOAD, Blob, BlobStore, Receiver, Size, largest
from shared.files.lifecycle.garbage_collection import CollectGarbage
from shared.files.lifecycle.placement import PlaceAwaited, PlaceStaged
from shared.files.resources import Availability, ReceivedContent, Version
from shared.files.tables import blobs as blob_rows
from shared.identity.authentication.revalidation import AUTHORITY_LOST, REQUIRE_AUTHORITY
from shared.ids import new_id
from shared.observability.telemetry import UPLOADED_BYTES

# More than the time limit of the reception: sealing, and a commit that waits for a lock, come after it.
RECEIVING_LEASE_MARGIN = timedelta(minutes=10)


class Sink(Protocol):
    """The destination of content while it is received."""

    def open(self) -> None:
        """Prepare for content, once the first of it has arrived."""

    def write(self, chunk: bytes | memoryview, /) -> None:
        """Write a chunk; the caller may reuse its buffer afterwards."""


Receive = Callable[[Sink], ReceivedContent]
"""Receives content into a sink. Raises the errors of content in `shared/files/errors.py`."""


class DiscardSink:
    """A sink for content that is stored already and is only counted and hashed."""

    def open(self) -> None:
        """Do nothing."""

    def write(self, chunk: bytes | memoryview, /) -> None:
        """Do nothing."""


def staged_availability(store: BlobStore) -> Availability:
    """Return the availability of committed content until a worker has placed it."""
    return Availability.AVAILABLE if store.staged_is_readable else Availability.PENDING


@contextmanager
def stage(
    database: Database, store: BlobStore, *, size: Size, time_limit_seconds: float, is_piece: bool = False
) -> Iterator[StagedContent]:
    """Yield a place for one version's content: receive it, `seal` it, and commit the rows that own it.

    Content that the block does not commit is deleted at its end; if that fails, a sweep deletes it.
    `time_limit_seconds` bounds the reception, so that a sweep can recognize a crashed one. The bytes of a piece are
    counted with the whole.
    """
    staged = StagedContent(database, store, size, time_limit_seconds, is_piece=is_piece)
    try:
        yield staged
    finally:
        staged.end()


class StagedContent:
    """The content of one version on its way into the store."""

    def __init__(
        self, database: Database, store: BlobStore, size: Size, time_limit_seconds: float, *, is_piece: bool
    ) -> None:
        self.version_id = new_id()
        self._database = database
        self._store = store
        self._size = size
        self._time_limit_seconds = time_limit_seconds
        self._is_piece = is_piece
        self._receiver: Receiver | None = None
        self._blob: Blob | None = None
        self._has_receiving_row = False
        self._may_be_committed = False
        self._written_bytes: int | None = None

    def open(self) -> None:
        """Start the upload in the store; record it first if the store keeps state for it."""
        if self._store.records_before_receiving:
            self._record_receiving()
        upload_id = self._store.begin(self.version_id)
        failpoints.hit("upload.begun")
        if self._store.records_before_receiving:
            self._record_upload(upload_id)
        self._receiver = self._store.receive(self.version_id, size_bytes=self._size, upload_id=upload_id)
        failpoints.hit("upload.opened")

    def write(self, chunk: bytes | memoryview, /) -> None:
        """Append a chunk. Raises BlobStoreUnavailable, StorageFull, StorageReadOnly."""
        self._opened.write(chunk)

    def seal(self) -> None:
        """Make all bytes durable after the last was received. Raises BlobStoreUnavailable, StorageFull."""
        failpoints.hit("upload.received")
        self._blob = self._opened.seal()
        failpoints.hit("upload.sealed")

    @contextmanager
    def committing(self, *, in_transaction: bool = False) -> Iterator[Session]:
        """Yield a session, and commit at the end of the block what `write_rows` wrote.

        A single statement is its own commit and saves two of three round trips. An effect of several statements needs a
        transaction, and so does one that must be undone because a sweep deleted the upload.
        """
        in_transaction = in_transaction or self._store.records_before_receiving
        # From here on only a sweep may delete the bytes: a commit that reported failure may have happened.
        self._may_be_committed = True
        with self._database.transaction() if in_transaction else self._database.autocommit() as session:
            failpoints.hit("upload.before_commit")
            try:
                yield session
            except AuthorityLost:
                self._may_be_committed = False
                raise
            except DomainError:
                # A transaction was rolled back for certain; a single statement may have been committed.
                self._may_be_committed = not in_transaction
                raise
        failpoints.hit("upload.committed")
        # A block that wrote no row, as a lost race, has committed nothing: its bytes are deleted.
        self._may_be_committed = self._written_bytes is not None
        # A piece counts with its whole, when the version is committed.
        UPLOADED_BYTES.inc(0 if self._is_piece else self._written_bytes or 0)

    def write_rows(
        self, session: Session, statement: str, values: Mapping[str, Any], content: ReceivedContent
    ) -> Any | None:
        """Insert a version with its staged blob by one statement; return its row, None if it wrote nothing.

        In the statement `{record_staged}` stands for the blob, and `{require_authority}` for the condition that the
        caller may still write. `values` have the file's `organization_id`, for placement by organization, and with that
        condition the caller's `authority`.

        Raises ServiceUnavailable, which undoes the statement, if a sweep has deleted the upload, and AuthorityLost if
        the statement found the caller revoked.
        """
        if self._blob is None:
            raise RuntimeError("content is sealed before it is committed")
        complete = _complete(statement, is_recorded=self._store.records_before_receiving)
        try:
            row = session.fetch_one(complete, {**values, **_columns(content, self._blob)})
        except psycopg2.Error as error:
            if error.pgcode == AUTHORITY_LOST:
                raise AuthorityLost from None
            raise
        if row is None:
            return None
        if not row.is_staged:
            raise ServiceUnavailable("The upload exceeded its time limit and was deleted; retry.")
        self._written_bytes = content.byte_size
        session.enqueue(PlaceStaged() if self._store.staged_is_readable else PlaceAwaited())
        return row

    def version(self, row: Any, content: ReceivedContent, *, file_id: UUID, revision: int) -> Version:
        """Return the version that a statement inserted."""
        return Version(
            id=self.version_id,
            file_id=file_id,
            revision=revision,
            file_name=content.file_name,
            media_type=content.media_type,
            byte_size=content.byte_size,
            content_sha256=content.sha256,
            created_at=row.created_at,
        )

    def end(self) -> None:
        """Release the bytes if they were or may have been committed; delete them otherwise."""
        if not self._may_be_committed:
            self._discard()
        elif self._receiver is not None:
            self._receiver.release()

    @property
    def _opened(self) -> Receiver:
        if self._receiver is None:
            raise RuntimeError("content is received after its sink was opened")
        return self._receiver

    def _discard(self) -> None:
        """Delete everything; an upload that cannot be reached now is deleted when its lease ends."""
        if self._receiver is not None:
            self._receiver.discard()
        if self._has_receiving_row:
            self._mark_for_deletion()

    def _record_receiving(self) -> None:
        """Insert the row before the store has anything, so that all that appears in the store has a row."""
        # Only after the size was accepted: a client may announce any size, and the interval of the lease has a maximum.
        lease = timedelta(seconds=self._time_limit_seconds) + RECEIVING_LEASE_MARGIN
        row = insert(blob_rows).values(
            version_id=self.version_id,
            state="receiving",
            byte_size=largest(self._size),
            upload_id=UNKNOWN_UPLOAD,
            lease_until=func.now() + literal(lease),
        )
        self._has_receiving_row = True
        with self._database.autocommit() as session:
            session.execute(row)

    def _record_upload(self, upload_id: str | None) -> None:
        named = blob_rows.update().where(blob_rows.c.version_id == self.version_id)
        with self._database.autocommit() as session:
            session.execute(named.values(upload_id=upload_id))

    def _mark_for_deletion(self) -> None:
        mine = (blob_rows.c.version_id == self.version_id, blob_rows.c.state == "receiving")
        with self._database.transaction() as session:
            # Only while it is `receiving`: a sweep may have marked it already, and claimed it.
            session.execute(blob_rows.update().where(*mine).values(state="doomed", lease_until=None))
            session.enqueue(CollectGarbage())


@cache
def _complete(statement: str, *, is_recorded: bool) -> Prepared:
    """Return the statement with the part that makes the blob of its `version` staged.

    `is_recorded` says that the store's uploads have a `receiving` row already. The part returns no row if a sweep has
    deleted the upload; the commit must then fail.
    """
    staged = _RECORDED if is_recorded else _UNRECORDED
    return Prepared(text(statement.format(record_staged=staged, require_authority=REQUIRE_AUTHORITY)))


_RECORDED = (
    "UPDATE blobs SET state = 'staged', byte_size = :byte_size, lease_until = NULL, checksum = :checksum,"
    " chunk_checksums = :chunk_checksums, organization_id = :organization_id, created_at = now()"
    " FROM version WHERE version_id = :version_id AND state = 'receiving' AND lease_until > now()"
    " RETURNING version_id"
)
_UNRECORDED = (
    "INSERT INTO blobs (version_id, state, byte_size, upload_id, checksum, chunk_checksums, organization_id)"
    " SELECT :version_id, 'staged', :byte_size, :upload_id, :checksum, :chunk_checksums, :organization_id FROM version"
    " RETURNING version_id"
)


def _columns(content: ReceivedContent, blob: Blob) -> dict[str, Any]:
    """Return the parameters that each such statement has."""
    return {
        "version_id": blob.version_id,
        "file_name": content.file_name,
        "media_type": content.media_type,
        "byte_size": content.byte_size,
        "content_sha256": content.sha256,
        "upload_id": blob.upload_id,
        "checksum": blob.checksum,
        "chunk_checksums": blob.chunk_checksums,
    }
