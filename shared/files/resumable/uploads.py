"""Resumable uploads. The first request fixes the parameters; the content is then received and stored in pieces.

Each request takes the upload's lease from all older requests, so an older request that hangs cannot add content any
more. The offset is the number of durable bytes (`pieces.py`).
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

from pydantic import TypeAdapter
from sqlalchemy import func, insert, literal, select, update

from shared.db.advisory_locks import AdvisoryLock, take_for
from shared.db.database import Database, Session
from shared.files.errors import OperationConflict, TooManyUploads, UploadEnded, UploadNotFound
from shared.files.idempotency import OperationKind, Prechecked
from shared.files.lifecycle.content_disposal import AT_ONCE, ContentKind, enqueue_for_collection
from shared.files.lifecycle.garbage_collection import CollectGarbage
from shared.files.replaces import ReplaceRequest
from shared.files.tables import blobs
from shared.files.tables import resumable_uploads as uploads
from shared.files.tables import upload_pieces as pieces
from shared.files.uploads import UploadRequest
from shared.identity.access.callers import Caller
from shared.identity.access.claims import AttributionClaims
from shared.identity.authentication.revalidation import CallerRevalidator
from shared.identity.errors import AttributionMismatch

Request = UploadRequest | ReplaceRequest
RETRY_SECONDS = 60
_REQUESTS: dict[OperationKind, TypeAdapter[Any]] = {
    OperationKind.UPLOAD: TypeAdapter(UploadRequest),
    OperationKind.REPLACE: TypeAdapter(ReplaceRequest),
}
_CLAIMS = TypeAdapter(AttributionClaims)
_RECEIVING = uploads.c.state == "Receiving"


class UploadState(StrEnum):
    """The state of a resumable upload."""

    RECEIVING = "Receiving"
    FINISHED = "Finished"
    CANCELLED = "Cancelled"
    EXPIRED = "Expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredContent:
    """The description of content before it is received. `sha256` is None if the client sent no digest."""

    file_name: str
    media_type: str
    sha256: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadLimits:
    """The time for which an upload is kept, and the most uploads that may be unfinished."""

    kept: timedelta
    per_caller: int
    per_organization: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumableUpload:
    """The state of an upload at the time when a request took its lease."""

    id: UUID
    state: UploadState
    kind: OperationKind
    request: Request
    declared: DeclaredContent
    owner_id: UUID
    organization_id: UUID
    received_bytes: int
    lease: UUID
    expires_at: datetime
    seconds_left: int
    attribution: AttributionClaims | None

    @property
    def is_finished(self) -> bool:
        """Whether the content is stored as a version."""
        return self.state is UploadState.FINISHED


def begin(
    database: Database,
    caller: Caller,
    prechecked: Prechecked,
    request: Request,
    declared: DeclaredContent,
    limits: UploadLimits,
) -> ResumableUpload:
    """Create an upload that was checked, or return the upload that an earlier request with the same operationId began.

    Raises OperationConflict if the earlier request had other parameters, TooManyUploads.
    """
    with database.transaction() as session:
        # Lock the payer and the caller before counting, so that concurrent requests cannot exceed a limit together.
        for counted in (prechecked.payer_id, prechecked.operation.executor_id):
            take_for(session, AdvisoryLock.RESUMABLE_UPLOADS, counted)
        row = _find_open(session, prechecked)
        if row is None:
            _refuse_too_many(session, prechecked, limits)
            session.execute(insert(uploads).values(_row(caller, prechecked, request, declared, limits)))
            row = _find_open(session, prechecked)
    upload = _read(row)
    if (row.request_hash, upload.declared) != (prechecked.operation.request_hash, declared):
        raise OperationConflict
    return upload


def take_over(database: Database, caller: Caller, upload_id: UUID) -> ResumableUpload:
    """Take the lease of one of the caller's uploads. Raises UploadNotFound, UploadEnded."""
    # Write a new lease, so that pieces of older requests fail: their client has lost the connection and sent a new
    # request.
    mine = (uploads.c.id == upload_id, uploads.c.executor_id == caller.executor.id)
    taken = update(uploads).where(*mine).values(lease=uuid4()).returning(*_COLUMNS)
    with database.autocommit() as session:
        row = session.execute(taken).one_or_none()
    return _require_open(row, caller)


def get_upload(database: Database, caller: Caller, upload_id: UUID) -> ResumableUpload:
    """Return one of the caller's uploads without taking its lease. Raises UploadNotFound, UploadEnded."""
    mine = (uploads.c.id == upload_id, uploads.c.executor_id == caller.executor.id)
    with database.autocommit() as session:
        row = session.execute(select(*_COLUMNS).where(*mine)).one_or_none()
    return _require_open(row, caller)


def bound_caller(revalidator: CallerRevalidator, caller: Caller, upload: ResumableUpload) -> Caller:
    """Return the caller with its present rights, and with the owner and payer that the upload had when it began.

    Raises AttributionInvalid, AttributionMismatch, OrganizationSuspended.
    """
    if upload.attribution is None:
        return caller
    if upload.attribution.deployment_id != caller.deployment_id:
        raise AttributionMismatch
    return revalidator.revalidate_attribution(caller, upload.attribution)


def end(database: Database, upload_id: UUID, state: UploadState) -> None:
    """End an upload and mark its pieces for deletion. An upload that has already ended does not change."""
    with database.transaction() as session:
        end_all(session, [upload_id], state)


def end_all(session: Session, upload_ids: list[UUID], state: UploadState) -> list[UUID]:
    """End the uploads that are open and return their ids. The collector marks pieces beyond the first AT_ONCE."""
    ended = update(uploads).where(uploads.c.id.in_(upload_ids), _RECEIVING)
    values = ended.values(state=state.value, ended_at=func.now())
    rows = session.execute(values.returning(uploads.c.id, uploads.c.organization_id))
    found = {row.id: row.organization_id for row in rows}
    # Use a separate statement after the rows are locked, so that it sees a piece that another request has just added.
    few = select(pieces.c.blob_id).where(pieces.c.upload_id.in_(list(found))).limit(AT_ONCE)
    forgotten = pieces.delete().where(pieces.c.blob_id.in_(few)).returning(pieces.c.blob_id)
    gone = list(session.execute(forgotten).scalars())
    if gone:
        marked = update(blobs).where(blobs.c.version_id.in_(gone)).values(state="doomed", lease_until=None)
        session.execute(marked)
        session.enqueue(CollectGarbage())
    if len(gone) == AT_ONCE:
        enqueue_for_collection(session, ContentKind.UPLOAD, found)
    return list(found)


_COLUMNS = (
    *uploads.c,
    func.now().label("now"),
    func.ceil(func.extract("epoch", uploads.c.expires_at - func.now())).label("seconds_left"),
)


def _find_open(session: Session, prechecked: Prechecked) -> Any:
    """Return the open upload of an operation, and take its lease. If the upload has expired, end it instead."""
    operation = prechecked.operation
    key = (
        uploads.c.executor_id == operation.executor_id,
        uploads.c.kind == operation.kind.value,
        uploads.c.operation_id == operation.operation_id,
        _RECEIVING,
    )
    row = session.execute(
        update(uploads).where(*key).values(lease=uuid4()).returning(*_COLUMNS)
    ).one_or_none()
    if row is not None and row.seconds_left <= 0:
        end_all(session, [row.id], UploadState.EXPIRED)
        return None
    return row


def _refuse_too_many(session: Session, prechecked: Prechecked, limits: UploadLimits) -> None:
    count = select(func.count()).select_from(uploads)
    of_caller = count.where(uploads.c.executor_id == prechecked.operation.executor_id, _RECEIVING)
    of_payer = count.where(uploads.c.payer_id == prechecked.payer_id, _RECEIVING)
    if session.execute(of_caller).scalar_one() >= limits.per_caller:
        raise TooManyUploads(retry_after_seconds=RETRY_SECONDS, maximum=limits.per_caller)
    if session.execute(of_payer).scalar_one() >= limits.per_organization:
        raise TooManyUploads(retry_after_seconds=RETRY_SECONDS, maximum=limits.per_organization)


def _row(
    caller: Caller, prechecked: Prechecked, request: Request, declared: DeclaredContent, limits: UploadLimits
) -> dict[str, Any]:
    operation = prechecked.operation
    claims = None if caller.proof is None else caller.proof.attribution
    return {
        "id": uuid4(),  # not new_id(), which begins with the time: this id is part of a URL and must not be guessed
        "state": UploadState.RECEIVING.value,
        "executor_id": operation.executor_id,
        "kind": operation.kind.value,
        "operation_id": operation.operation_id,
        "request_hash": operation.request_hash,
        "request": _REQUESTS[operation.kind].dump_python(request, mode="json"),
        "attribution": None if claims is None else _CLAIMS.dump_python(claims, mode="json"),
        "owner_id": prechecked.owner_id,
        "organization_id": prechecked.organization_id,
        "payer_id": prechecked.payer_id,
        "file_name": declared.file_name,
        "media_type": declared.media_type,
        "content_sha256": declared.sha256,
        "byte_size": request.byte_size,
        "lease": uuid4(),
        "expires_at": func.now() + literal(limits.kept),
    }


def _require_open(row: Any, caller: Caller) -> ResumableUpload:
    """Return the upload of a row. Raises UploadNotFound if its owner is not the attribution's owner, UploadEnded."""
    is_attributed = caller.proof is not None and caller.proof.attribution is not None
    if row is None or (is_attributed and caller.owner is not None and caller.owner.id != row.owner_id):
        raise UploadNotFound
    upload = _read(row)
    # Treat an upload that is past its deadline as ended, even if the sweep has not marked it yet.
    is_over = upload.state is UploadState.RECEIVING and upload.seconds_left <= 0
    if is_over or upload.state in (UploadState.CANCELLED, UploadState.EXPIRED):
        raise UploadEnded
    return upload


def _read(row: Any) -> ResumableUpload:
    kind = OperationKind(row.kind)
    digest = row.content_sha256
    return ResumableUpload(
        id=row.id,
        state=UploadState(row.state),
        kind=kind,
        request=_REQUESTS[kind].validate_python(row.request),
        declared=DeclaredContent(
            file_name=row.file_name,
            media_type=row.media_type,
            sha256=None if digest is None else bytes(digest),
        ),
        owner_id=row.owner_id,
        organization_id=row.organization_id,
        received_bytes=row.received_bytes,
        lease=row.lease,
        expires_at=row.expires_at,
        seconds_left=int(row.seconds_left),
        attribution=None if row.attribution is None else _CLAIMS.validate_python(row.attribution),
    )
