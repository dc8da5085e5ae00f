"""The content of a resumable upload: a sequence of pieces. Each piece is a blob and is durable before the offset moves.

One statement inserts a piece's blob and moves the offset, if the request still has the upload's lease and the offset
is where the piece begins. After an interruption everything up to the last received byte is kept. If the process
crashes, its unfinished piece is deleted like any crashed upload (`staging.py`), but no acknowledged byte is lost.
"""

from contextlib import closing
from datetime import timedelta
from functools import partial
from hashlib import sha256
from time import monotonic
from typing import Any, Protocol

from sqlalchemy import select

from shared import failpoints
from shared.db.database import Database
from shared.errors import DomainError
from shared.files.access import Revalidate, authorize, explain_denial
from shared.files.blobs.base import AtMost, Blob, BlobStore
from shared.files.blobs.chunks import checked_chunks
from shared.files.errors import (
    DigestMismatch,
    InconsistentUploadLength,
    MismatchingUploadOffset,
    OperationInProgress,
)
from shared.files.idempotency import OperationKind
from shared.files.resources import ReceivedContent
from shared.files.resumable.uploads import ResumableUpload
from shared.files.staging import Sink, StagedContent, stage
from shared.files.tables import blobs
from shared.files.tables import upload_pieces as pieces
from shared.identity.access.callers import Caller
from shared.identity.access.permissions import Permission
from shared.identity.authentication.revalidation import authority

# The size of one part on S3, so that a piece needs only one buffer and one request.
PIECE_BYTES = 8 << 20
PIECE_SECONDS = 2.0
"""The longest time to receive a piece. If the process crashes, only bytes of this time are lost."""
BUFFER_BYTES = 256 << 10

_ADVANCE = """
WITH upload AS (
    UPDATE resumable_uploads SET received_bytes = received_bytes + :byte_size, expires_at = now() + :kept
    WHERE id = :resumable_id AND lease = :lease AND received_bytes = :offset_bytes AND state = 'Receiving'
        AND expires_at > now()
    RETURNING id
),
version AS (
    INSERT INTO upload_pieces (blob_id, upload_id, offset_bytes, byte_size)
    SELECT :version_id, id, :offset_bytes, :byte_size FROM upload
    WHERE {require_authority} RETURNING blob_id
),
blob AS ({record_staged})
SELECT blob.version_id IS NOT NULL AS is_staged FROM version LEFT JOIN blob ON true
"""


class Body(Protocol):
    """The source of content."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Read some bytes into the buffer and return how many; 0 at the end."""


def append(
    database: Database,
    store: BlobStore,
    caller: Caller,
    upload: ResumableUpload,
    body: Body,
    *,
    kept: timedelta,
    time_limit_seconds: float,
    revalidate: Revalidate,
) -> int:
    """Store the content of a body, and return the upload's new offset.

    `caller` must be the result of `uploads.bound_caller`. If the body ends with an error, the bytes before the error
    are stored and the error is raised. Raises MismatchingUploadOffset if another request took the upload over,
    InconsistentUploadLength if the content exceeds byteSize, BlobStoreUnavailable, StorageFull.
    """
    buffer = memoryview(bytearray(BUFFER_BYTES))
    authorize_again = partial(_authorize_again, revalidate, caller, upload)
    offset, failure, is_end = upload.received_bytes, None, False
    while not is_end:
        room = min(PIECE_BYTES, upload.request.byte_size - offset)
        if room == 0:
            _refuse_more(body, buffer)
            return offset
        with stage(
            database, store, size=AtMost(room), time_limit_seconds=time_limit_seconds, is_piece=True
        ) as staged:
            size, failure, is_end = _receive(staged, body, buffer, room)
            # Store no piece if the body has no bytes.
            if size:
                staged.seal()
                values = _values(caller, upload, offset, kept)
                with explain_denial(authorize_again):
                    _advance(staged, values, size)
        offset += size
    if failure is not None:
        raise failure
    return offset


def assemble(database: Database, store: BlobStore, upload: ResumableUpload, sink: Sink) -> ReceivedContent:
    """Write the whole content into a sink, and hash and count it. Return its description.

    Raises DigestMismatch, OperationInProgress if another request completes the upload at this moment, BlobDamaged,
    BlobStoreUnavailable.
    """
    digest, size = sha256(), 0
    sink.open()
    for row in _find_pieces(database, upload):
        # A piece has no row or is pending deletion, so another request has completed or ended the upload since.
        if row.state is None or row.state == "doomed" or row.offset_bytes != size:
            raise OperationInProgress
        with closing(_chunks(store, row)) as chunks:
            for chunk in chunks:
                digest.update(chunk)
                sink.write(chunk)
                size += len(chunk)
    if size != upload.request.byte_size:
        raise OperationInProgress
    if upload.declared.sha256 not in (None, digest.digest()):
        raise DigestMismatch("The content does not match the digest that was sent when the upload began.")
    return ReceivedContent(
        file_name=upload.declared.file_name,
        media_type=upload.declared.media_type,
        byte_size=size,
        sha256=digest.digest(),
    )


def _refuse_more(body: Body, buffer: memoryview) -> None:
    if body.readinto(buffer[:1]):
        raise InconsistentUploadLength


def _receive(
    staged: StagedContent, body: Body, buffer: memoryview, room: int
) -> tuple[int, DomainError | None, bool]:
    """Receive one piece; return its size, the error of the body, and whether the body has ended."""
    size, ends_at = 0, monotonic() + PIECE_SECONDS
    # Wait for the first bytes without a limit here: if the sender sends nothing, the deadline of the body ends the
    # request.
    while size < room and (size == 0 or monotonic() < ends_at):
        try:
            read = body.readinto(buffer[: room - size])
        except DomainError as failure:
            return size, failure, True
        if not read:
            return size, None, True
        if not size:
            staged.open()
        staged.write(buffer[:read])
        size += read
    return size, None, False


def _advance(staged: StagedContent, values: dict[str, Any], size: int) -> None:
    content = ReceivedContent(file_name="", media_type="", byte_size=size, sha256=b"")
    with staged.committing() as session:
        row = staged.write_rows(session, _ADVANCE, values, content)
    failpoints.hit("resumable.advanced")
    if row is None:
        raise MismatchingUploadOffset


def _authorize_again(revalidate: Revalidate, caller: Caller, upload: ResumableUpload) -> None:
    authorize(
        revalidate(caller),
        _permission(upload),
        owner_id=upload.owner_id,
        organization_id=upload.organization_id,
    )


def _permission(upload: ResumableUpload) -> Permission:
    return Permission.FILE_CREATE if upload.kind is OperationKind.UPLOAD else Permission.FILE_UPDATE


def _values(caller: Caller, upload: ResumableUpload, offset: int, kept: timedelta) -> dict[str, Any]:
    return {
        "resumable_id": upload.id,
        "lease": upload.lease,
        "offset_bytes": offset,
        "kept": kept,
        "organization_id": upload.organization_id,
        "authority": authority(
            caller, _permission(upload), owner_id=upload.owner_id, organization_id=upload.organization_id
        ),
    }


def _find_pieces(database: Database, upload: ResumableUpload) -> list[Any]:
    found = (
        select(pieces.c.offset_bytes, pieces.c.blob_id, pieces.c.byte_size)
        .add_columns(blobs.c.state, blobs.c.upload_id, blobs.c.checksum, blobs.c.chunk_checksums)
        .outerjoin(blobs, blobs.c.version_id == pieces.c.blob_id)
        .where(pieces.c.upload_id == upload.id)
        .order_by(pieces.c.offset_bytes)
    )
    with database.autocommit() as session:
        return list(session.execute(found))


def _chunks(store: BlobStore, row: Any) -> Any:
    """Yield the content of one piece. If the store cannot read staged content, place the piece first."""
    if row.state == "staged" and not store.can_read_staged(row.blob_id):
        blob = Blob(
            version_id=row.blob_id, size_bytes=row.byte_size, upload_id=row.upload_id, checksum=row.checksum
        )
        for failure in store.place([blob]).values():
            raise failure
    with closing(store.open(row.blob_id, placed=row.state == "live")) as reader:
        if row.chunk_checksums is None:
            yield from reader.chunks(0, row.byte_size)
        else:
            checksums = bytes(row.chunk_checksums)
            yield from checked_chunks(reader, 0, row.byte_size, size_bytes=row.byte_size, checksums=checksums)
