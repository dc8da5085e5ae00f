"""Bring content into the store and commit it: stage → commit, the first half of every write.

The order is the promise. Bytes are durable before the one transaction that makes them somebody's; before it nothing
exists but staged bytes that a sweep may take, after it nothing can be lost. Placing the bytes is a worker's job
(`lifecycle/placement.py`) and changes nothing that a reader sees.

Crash points: before the commit the staged bytes are unlocked by the death of their process (or their `receiving` row
outlives its lease) and are swept; a commit whose outcome is unknown leaves the bytes to the same sweep, which asks
the database; after the commit the row waits for a worker, with or without the message.
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

RECEIVING_LEASE_MARGIN = timedelta(minutes=10)


class Sink(Protocol):
    """Where content goes while it is received."""

    def open(self) -> None:
        """Make ready, once it is known that there is content, and before any of it is written."""

    def write(self, chunk: bytes | memoryview, /) -> None:
        """Take a chunk, whose bytes are used again once this returns."""


Receive = Callable[[Sink], ReceivedContent]
"""Receives content into a sink; raises the errors of `shared/files/errors.py`."""


class DiscardSink:
    """A sink for content that is stored already, and only has to be counted and hashed."""

    def open(self) -> None:
        """Do nothing."""

    def write(self, chunk: bytes | memoryview, /) -> None:
        """Do nothing."""


def staged_availability(store: BlobStore) -> Availability:
    """Tell what committed content counts as until a worker has placed it."""
    return Availability.AVAILABLE if store.staged_is_readable else Availability.PENDING


@contextmanager
def stage(
    database: Database, store: BlobStore, *, size: Size, time_limit_seconds: float, is_piece: bool = False
) -> Iterator[StagedContent]:
    """Take one version's content within the block: receive it, `seal` it, write the rows that make it somebody's.

    What the block does not commit is taken back at its end; should that fail, a sweep finds it. `time_limit_seconds`
    bounds the reception, so that a sweep can tell a dead one. A piece is counted with its whole.
    """
    staged = StagedContent(database, store, size, time_limit_seconds, is_piece=is_piece)
    try:
        yield staged
    finally:
        staged.end()


class StagedContent:
    """One version's content on its way into the store, begun there when it is opened."""

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
        """Begin the upload in the store; where the store keeps state for it, record first that it will."""
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
        """Make every byte durable, all of them having been received. Raises BlobStoreUnavailable, StorageFull."""
        failpoints.hit("upload.received")
        self._blob = self._opened.seal()
        failpoints.hit("upload.sealed")

    @contextmanager
    def committing(self, *, in_transaction: bool = False) -> Iterator[Session]:
        """Commit at the end of the block what it writes by `write_rows`, if it writes anything.

        One statement is its own commit, for a third of the round trips. An effect of more, and one that may have to be
        undone because a sweep gave the upload up, needs a transaction.
        """
        in_transaction = in_transaction or self._store.records_before_receiving
        # From here on only a sweep, asking the database, may take the bytes: a commit that failed may have happened.
        self._may_be_committed = True
        with self._database.transaction() if in_transaction else self._database.autocommit() as session:
            failpoints.hit("upload.before_commit")
            try:
                yield session
            except AuthorityLost:
                self._may_be_committed = False
                raise
            except DomainError:
                # A transaction is rolled back, and not merely lost sight of.
                self._may_be_committed = not in_transaction
                raise
        failpoints.hit("upload.committed")
        self._may_be_committed = self._written_bytes is not None
        UPLOADED_BYTES.inc(0 if self._is_piece else self._written_bytes or 0)

    def write_rows(
        self, session: Session, statement: str, values: Mapping[str, Any], content: ReceivedContent
    ) -> Any | None:
        """Write a version with its staged blob by one statement, in which `{record_staged}` stands for the latter.

        `values` have the file's `organization_id`, by which its placement takes its turn. `{require_authority}` is the
        condition that the caller may still write; for it `values` have their `authority`.

        Gives its row, None if it wrote nothing. Raises ServiceUnavailable, and so undoes the statement, when a sweep
        has given the upload up, and AuthorityLost when the statement found its caller to be revoked.
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
            raise ServiceUnavailable("The upload took too long and was given up; try again.")
        self._written_bytes = content.byte_size
        session.enqueue(PlaceStaged() if self._store.staged_is_readable else PlaceAwaited())
        return row

    def version(self, row: Any, content: ReceivedContent, *, file_id: UUID, revision: int) -> Version:
        """Describe the version that a statement wrote."""
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
        """Let go of what was committed, or may have been; take back everything else."""
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
        """Take everything back; a recorded upload that is not reached here is found when its lease ends."""
        if self._receiver is not None:
            self._receiver.discard()
        if self._has_receiving_row:
            self._mark_for_deletion()

    def _record_receiving(self) -> None:
        """Write the row before there is anything in the store, so that whatever comes to be there has one."""
        # Only here, where the size has been found acceptable: any size may be announced, and not every one has a lease.
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
            session.execute(blob_rows.update().where(*mine).values(state="doomed", lease_until=None))
            session.enqueue(CollectGarbage())


@cache
def _complete(statement: str, *, is_recorded: bool) -> Prepared:
    """Complete a statement by the part that makes the blob of its `version` staged.

    `is_recorded` says that the store's uploads have a `receiving` row already. That part yields no row when a sweep
    has given the upload up; the commit must then fail.
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
    """Give the parameters that every such statement takes."""
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
