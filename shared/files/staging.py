"""Bring a request's content into the store and commit it: stage → commit, the first half of every write.

The order is the promise. Bytes are durable before the one transaction that makes them somebody's; before it nothing
exists but staged bytes that a sweep may take, after it nothing can be lost. Placing the bytes is a worker's job
(`placement.py`) and changes nothing that a reader sees.

Crash points: before the commit the staged bytes are unlocked by the death of their process (or their `receiving` row
outlives its lease) and are swept; a commit whose outcome is unknown leaves the bytes to the same sweep, which asks
the database; after the commit the row waits for a worker, with or without the message.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import Row, TextClause, func, insert, literal, text

from shared import failpoints
from shared.database import Database, Session
from shared.errors import Unavailable
from shared.files.blobs.base import UNKNOWN_UPLOAD, Blob, BlobStore, Receiver, Size, largest
from shared.files.collection import CollectDoomed
from shared.files.operations import (
    Operation,
    Outcome,
    ReceivedPart,
    hash_content,
    operation_values,
    require_same_content,
)
from shared.files.placement import PlaceStaged
from shared.files.resources import Availability, Receipt, Version
from shared.files.tables import blobs as blob_rows
from shared.telemetry import UPLOADED_BYTES

Committed = TypeVar("Committed")
OpenReceiver = Callable[[], Receiver]
Receive = Callable[["OpenReceiver | None"], ReceivedPart]
"""Receives the request's content into the receiver it opens once it knows there is some; given None, only hashes it.

Raises the errors of `body_errors.py`."""

Commit = Callable[[Session, ReceivedPart, Blob], "Committed | None"]
"""Writes the effect; None says that nothing was written."""

Begin = Callable[[], AbstractContextManager[Session]]

Confirm = Callable[[], None]
"""Raises a DomainError when who began may not end it any more: the last question before the commit."""

RECEIVING_LEASE_MARGIN = timedelta(minutes=10)


def staged_availability(store: BlobStore) -> Availability:
    """Tell what committed content counts as until a worker has placed it."""
    return Availability.AVAILABLE if store.staged_is_readable else Availability.PENDING


def stage_and_commit(
    database: Database,
    store: BlobStore,
    *,
    version_id: UUID,
    byte_size: Size,
    time_limit_seconds: float,
    receive: Receive,
    commit: Commit[Committed],
    confirm: Confirm | None = None,
    begin: Begin | None = None,
) -> tuple[ReceivedPart, Committed | None]:
    """Receive the content, make it durable, commit its rows; return what was received and what was committed.

    `time_limit_seconds` bounds the reception, so that a sweep can tell a dead one. What `confirm` raises takes
    everything back. An effect of more than one statement says by `begin` which transaction it needs. On any failure
    nothing stays behind that a sweep does not find.
    """
    reception = _Reception(database, store, version_id, byte_size, time_limit_seconds)
    try:
        part = receive(reception.open)
        failpoints.hit("upload.received")
        blob = reception.receiver.seal()
        failpoints.hit("upload.sealed")
        if confirm is not None:
            confirm()
    except BaseException:
        reception.discard()
        raise
    try:
        # An upload's effect is one statement. Only where it may have to be undone, because a sweep gave the upload up,
        # does it need a transaction around it; without one it is its own commit and costs a third of the round trips.
        begin = begin or (database.transaction if store.records_before_receiving else database.autocommit)
        with begin() as session:
            failpoints.hit("upload.before_commit")
            committed = commit(session, part, blob)
            if committed is not None:
                session.enqueue(PlaceStaged())
    except BaseException:
        # The commit may have happened all the same: only a sweep, asking the database, may take the bytes.
        reception.receiver.release()
        raise
    failpoints.hit("upload.committed")
    if committed is None:
        reception.discard()
    else:
        UPLOADED_BYTES.inc(part.byte_size)
        reception.receiver.release()
    return part, committed


@cache
def commit_statement(statement: str, *, is_recorded: bool) -> TextClause:
    """Complete a commit's statement by the part that makes the blob of its `version` staged.

    `is_recorded` says that the store's uploads have a `receiving` row already. That part yields no row when a sweep
    has given the upload up; the commit must then fail.
    """
    return text(statement.format(record_staged=_RECORDED if is_recorded else _UNRECORDED))


_RECORDED = (
    "UPDATE blobs SET state = 'staged', byte_size = :byte_size, lease_until = NULL, checksum = :checksum,"
    " chunk_checksums = :chunk_checksums,"
    " created_at = now()"
    " FROM version WHERE version_id = :version_id AND state = 'receiving' AND lease_until > now()"
    " RETURNING version_id"
)
_UNRECORDED = (
    "INSERT INTO blobs (version_id, state, byte_size, upload_id, checksum, chunk_checksums)"
    " SELECT :version_id, 'staged', :byte_size, :upload_id, :checksum, :chunk_checksums FROM version"
    " RETURNING version_id"
)


def commit_values(operation: Operation, part: ReceivedPart, blob: Blob) -> dict[str, Any]:
    """Give the parameters that every such statement takes."""
    return {
        **operation_values(operation),
        "content_hash": hash_content(part),
        "version_id": blob.version_id,
        "file_name": part.file_name,
        "media_type": part.media_type,
        "byte_size": part.byte_size,
        "content_sha256": part.sha256,
        "upload_id": blob.upload_id,
        "checksum": blob.checksum,
        "chunk_checksums": blob.chunk_checksums,
    }


def committed_version(
    row: Row[Any] | None, part: ReceivedPart, blob: Blob, *, file_id: UUID, revision: int
) -> Version | None:
    """Read the one row of such a statement: the version it wrote, or None if it wrote nothing.

    Raises Unavailable, and so undoes the statement, when the upload had been given up by a sweep.
    """
    if row is None:
        return None
    if not row.is_staged:
        raise Unavailable("The upload took too long and was given up; try again.")
    return Version(
        id=blob.version_id,
        file_id=file_id,
        revision=revision,
        file_name=part.file_name,
        media_type=part.media_type,
        byte_size=part.byte_size,
        content_sha256=part.sha256,
        created_at=row.created_at,
    )


def replay(store: BlobStore, outcome: Outcome, part: ReceivedPart) -> Receipt:
    """Give the first result of an operation again, for the same content. Raises OperationConflict for any other."""
    require_same_content(outcome, part)
    return Receipt(
        version=outcome.version,
        purpose=outcome.purpose,
        retention_expires_at=outcome.retention_expires_at,
        availability=staged_availability(store),
        replayed=True,
    )


class _Reception:
    """One upload on its way into the store, begun when its content arrives."""

    def __init__(
        self,
        database: Database,
        store: BlobStore,
        version_id: UUID,
        byte_size: Size,
        time_limit_seconds: float,
    ) -> None:
        self._database = database
        self._store = store
        self._version_id = version_id
        self._byte_size = byte_size
        self._time_limit_seconds = time_limit_seconds
        self._receiver: Receiver | None = None
        self._is_recorded = False

    @property
    def receiver(self) -> Receiver:
        """The receiver, once `open` has made it."""
        if self._receiver is None:
            raise RuntimeError("the content was received without its receiver")
        return self._receiver

    def open(self) -> Receiver:
        """Begin the upload in the store; where the store keeps state for it, record first that it will."""
        if self._store.records_before_receiving:
            self._record()
        upload_id = self._store.begin(self._version_id)
        failpoints.hit("upload.begun")
        if self._store.records_before_receiving:
            self._record_upload(upload_id)
        self._receiver = self._store.receive(
            self._version_id, size_bytes=self._byte_size, upload_id=upload_id
        )
        failpoints.hit("upload.opened")
        return self._receiver

    def discard(self) -> None:
        """Take everything back; a recorded upload that is not reached here is found when its lease ends."""
        if self._receiver is not None:
            self._receiver.discard()
        if self._is_recorded:
            self._doom()

    def _record(self) -> None:
        """Write the row before there is anything in the store, so that whatever comes to be there has one."""
        # Only here, where the size has been found acceptable: any size may be announced, and not every one has a lease.
        lease = timedelta(seconds=self._time_limit_seconds) + RECEIVING_LEASE_MARGIN
        row = insert(blob_rows).values(
            version_id=self._version_id,
            state="receiving",
            byte_size=largest(self._byte_size),
            upload_id=UNKNOWN_UPLOAD,
            lease_until=func.now() + literal(lease),
        )
        self._is_recorded = True
        with self._database.autocommit() as session:
            session.execute(row)

    def _record_upload(self, upload_id: str | None) -> None:
        named = blob_rows.update().where(blob_rows.c.version_id == self._version_id)
        with self._database.autocommit() as session:
            session.execute(named.values(upload_id=upload_id))

    def _doom(self) -> None:
        mine = (blob_rows.c.version_id == self._version_id, blob_rows.c.state == "receiving")
        with self._database.transaction() as session:
            session.execute(blob_rows.update().where(*mine).values(state="doomed", lease_until=None))
            session.enqueue(CollectDoomed())
