"""Receive content into the store and commit the rows that own it. Every write of content uses this module.

The bytes are durable before the transaction that inserts their rows. Until this transaction commits, the bytes are
staged and a sweep may delete them. After the commit nothing can be lost. A worker later places the bytes
(`lifecycle/placement.py`); readers notice no difference.

If the process crashes before the commit, its staged bytes lose their lock, or the lease of their `receiving` row
expires. Then a sweep deletes the bytes. If the outcome of a commit is unknown, the sweep checks the database first.
After the commit a worker finds the row, even if the message to the worker was lost.
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

# Added to the time limit of the reception: the seal, and a commit that may wait for a lock, follow the reception.
RECEIVING_LEASE_MARGIN = timedelta(minutes=10)


class Sink(Protocol):
    """The destination of content while it is received."""

    def open(self) -> None:
        """Prepare for content. Called when the first bytes have arrived."""

    def write(self, chunk: bytes | memoryview, /) -> None:
        """Write a chunk; the caller may reuse its buffer afterwards."""


Receive = Callable[[Sink], ReceivedContent]
"""Receives content and writes it into a sink. Raises the errors of content in `shared/files/errors.py`."""


class DiscardSink:
    """A sink that drops content which is already stored. The caller only counts and hashes the content."""

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
    """Yield an object for one version's content. The block receives and seals the content and commits its rows.

    If the block does not commit the content, it is deleted at the end of the block; if the deletion fails, a sweep
    deletes the content later. `time_limit_seconds` limits the reception, so that a sweep can recognize a crashed one.
    With `is_piece` the metric of uploaded bytes is not increased, because it is increased for the whole upload.
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
        """Start the upload in the store.

        If the store keeps state for an upload, record the upload in the database first.
        """
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
        """Make all received bytes durable. Call it after the last byte. Raises BlobStoreUnavailable, StorageFull."""
        failpoints.hit("upload.received")
        self._blob = self._opened.seal()
        failpoints.hit("upload.sealed")

    @contextmanager
    def committing(self, *, in_transaction: bool = False) -> Iterator[Session]:
        """Yield a session for `write_rows`, and commit at the end of the block.

        Without `in_transaction` a single statement commits itself, which saves two of three round trips. Several
        statements need a transaction. A statement that must be undone if a sweep has deleted the upload needs one
        too.
        """
        in_transaction = in_transaction or self._store.records_before_receiving
        # From here on only a sweep may delete the bytes, because a commit may succeed although it reports a failure.
        self._may_be_committed = True
        with self._database.transaction() if in_transaction else self._database.autocommit() as session:
            failpoints.hit("upload.before_commit")
            try:
                yield session
            except AuthorityLost:
                self._may_be_committed = False
                raise
            except DomainError:
                # Discard the bytes only after a transaction, which was rolled back. A single statement may have been
                # committed.
                self._may_be_committed = not in_transaction
                raise
        failpoints.hit("upload.committed")
        # If the block wrote no row, for example because another attempt was faster, its bytes can be deleted.
        self._may_be_committed = self._written_bytes is not None
        # Do not count a piece: the whole upload is counted when its version is committed.
        UPLOADED_BYTES.inc(0 if self._is_piece else self._written_bytes or 0)

    def write_rows(
        self, session: Session, statement: str, values: Mapping[str, Any], content: ReceivedContent
    ) -> Any | None:
        """Insert a version and its staged blob by one statement. Return the row; None if the statement wrote nothing.

        In the statement, `{record_staged}` is replaced by the insert of the blob, and `{require_authority}` by the
        condition that the caller may still write. `values` must have the file's `organization_id`, because
        organizations take turns in the placement. With `{require_authority}`, `values` must also have the caller's
        `authority`.

        Raises ServiceUnavailable if a sweep has deleted the upload, which rolls the statement back. Raises
        AuthorityLost if the caller was revoked.
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
        """Return the version that a statement has inserted, from the statement's row."""
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
        """Release the bytes if they may have been committed; otherwise delete them."""
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
        """Delete the upload. If the store does not respond, a sweep deletes the upload when its lease has expired."""
        if self._receiver is not None:
            self._receiver.discard()
        if self._has_receiving_row:
            self._mark_for_deletion()

    def _record_receiving(self) -> None:
        """Insert the row before the upload begins in the store, so that the store never has bytes without a row."""
        # Compute the lease after the size was accepted: a huge announced size would exceed the maximum of an interval.
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
            # Mark the row only if it is still `receiving`: a sweep may have marked and claimed it already.
            session.execute(blob_rows.update().where(*mine).values(state="doomed", lease_until=None))
            session.enqueue(CollectGarbage())


@cache
def _complete(statement: str, *, is_recorded: bool) -> Prepared:
    """Return the statement, completed by the SQL that makes the version's blob staged.

    `is_recorded` says whether the store's uploads already have a `receiving` row. If a sweep has deleted the upload,
    the added SQL returns no row, and the commit must fail.
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
    """Return the parameters that every statement with a staged blob has."""
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
