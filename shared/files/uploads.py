"""Upload agent output: one new file of the caller's owner, exactly once per operationId.

Specified in docs/specification/files.md#upload.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from shared.credits.storage import refuse_unpaid_storage
from shared.database import Database, LockTimeout, Session
from shared.errors import FieldError, PermissionDenied, ValidationFailed
from shared.files.access import Recheck, as_it_was, authorize_creation
from shared.files.blobs.base import Blob, BlobStore
from shared.files.errors import OperationInProgress
from shared.files.operations import (
    Operation,
    OperationKind,
    ReceivedPart,
    get_outcome,
    get_standing,
    hash_request,
)
from shared.files.resources import Purpose, Receipt, Version
from shared.files.staging import (
    Confirm,
    Receive,
    commit_statement,
    commit_values,
    committed_version,
    replay,
    stage_and_commit,
    staged_availability,
)
from shared.identity.callers import Caller, Owner
from shared.identity.errors import PayerMismatch
from shared.ids import new_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Association:
    """A resource that the new file belongs to, recorded as a reference."""

    kind: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadRequest:
    """What an upload asks for, besides its content."""

    operation_id: UUID
    organization_id: UUID | None
    byte_size: int
    retention_expires_at: datetime | None
    association: Association | None
    time_limit_seconds: float


# The whole effect in one statement: one round trip, and either every row or, when the operation was done before, none.
_COMMIT = """
WITH operation AS (
    INSERT INTO file_operations
        (executor_id, kind, operation_id, request_hash, content_hash, file_id, version_id, retention_expires_at)
    VALUES (:executor_id, :kind, :operation_id, :request_hash, :content_hash, :file_id, :version_id,
        CAST(:retention_expires_at AS timestamptz))
    ON CONFLICT DO NOTHING RETURNING file_id
),
file AS (
    INSERT INTO files (id, organization_id, payer_id, purpose, owner_kind, owner_id, state, current_version_id,
        revision, retention_expires_at)
    SELECT file_id, :organization_id, :payer_id, 'AgentArtifact', :owner_kind, :owner_id, 'Available', :version_id,
        1, CAST(:retention_expires_at AS timestamptz)
    FROM operation RETURNING id
),
version AS (
    INSERT INTO file_versions (id, file_id, revision, file_name, media_type, byte_size, content_sha256)
    SELECT :version_id, id, 1, :file_name, :media_type, :byte_size, :content_sha256 FROM file RETURNING created_at
),
reference AS (
    INSERT INTO file_references (file_id, kind, reference_id)
    SELECT id, CAST(:association_kind AS varchar), CAST(:association_id AS varchar) FROM file
    WHERE CAST(:association_kind AS varchar) IS NOT NULL
),
blob AS ({record_staged})
SELECT version.created_at, blob.version_id IS NOT NULL AS is_staged FROM version LEFT JOIN blob ON true
"""


def upload(
    database: Database,
    store: BlobStore,
    caller: Caller,
    request: UploadRequest,
    receive: Receive,
    *,
    recheck: Recheck = as_it_was,
) -> Receipt:
    """Store the content as a new file of the caller's owner; a retry gets the first result.

    The caller is authorized again once the content has been received, which may take hours.

    Raises OwnerRequired, PermissionDenied, PayerMismatch, OperationConflict, OperationInProgress, ValidationFailed,
    StorageUnpaid, the errors of `body_errors.py`, BlobStoreUnavailable, StorageFull, Unavailable.
    """
    owner = authorize_creation(caller)
    if request.organization_id is not None and request.organization_id != caller.payer_id:
        raise PayerMismatch
    operation = _operation(caller, owner, request)
    with database.autocommit() as session:
        standing = get_standing(session, operation, payer_id=caller.payer_id)
    confirm = partial(_confirm, caller, owner, recheck)
    if standing.outcome is not None:
        part = receive(None)
        confirm()
        return replay(store, standing.outcome, part)
    _require_future(request.retention_expires_at, standing.now)
    refuse_unpaid_storage(is_refused=standing.is_storage_refused)
    return _store(database, store, caller, owner, request, operation, receive, confirm)


def _confirm(caller: Caller, owner: Owner, recheck: Recheck) -> None:
    if authorize_creation(recheck(caller)) != owner:
        raise PermissionDenied("The caller no longer stores files for the owner that this upload began with.")


def _require_future(deadline: datetime | None, now: datetime) -> None:
    """Raise ValidationFailed for a deadline that the database's clock has passed."""
    if deadline is not None and deadline <= now:
        message = "must be in the future"
        raise ValidationFailed(
            "The retention deadline must be in the future.",
            errors=[FieldError(location="query", name="retentionExpiresAt", message=message)],
        )


def _store(
    database: Database,
    store: BlobStore,
    caller: Caller,
    owner: Owner,
    request: UploadRequest,
    operation: Operation,
    receive: Receive,
    confirm: Confirm,
) -> Receipt:
    file_id = new_id()
    values = _file_values(caller, owner, request, file_id)
    statement = commit_statement(_COMMIT, is_recorded=store.records_before_receiving)

    def commit(session: Session, part: ReceivedPart, blob: Blob) -> Version | None:
        row = session.execute(statement, values | commit_values(operation, part, blob)).one_or_none()
        return committed_version(row, part, blob, file_id=file_id, revision=1)

    try:
        part, version = stage_and_commit(
            database,
            store,
            version_id=new_id(),
            byte_size=request.byte_size,
            time_limit_seconds=request.time_limit_seconds,
            receive=receive,
            commit=commit,
            confirm=confirm,
        )
    except LockTimeout:
        raise OperationInProgress from None
    if version is None:
        return replay(store, get_outcome(database, operation), part)
    return Receipt(
        version=version,
        purpose=Purpose.AGENT_ARTIFACT,
        retention_expires_at=request.retention_expires_at,
        availability=staged_availability(store),
        replayed=False,
    )


def _operation(caller: Caller, owner: Owner, request: UploadRequest) -> Operation:
    request_hash = hash_request(
        route="upload",
        owner=owner.id,
        payer=caller.payer_id,
        byte_size=request.byte_size,
        retention_expires_at=request.retention_expires_at,
        association=request.association and (request.association.kind, request.association.id),
    )
    return Operation(
        executor_id=caller.executor.id,
        kind=OperationKind.UPLOAD,
        operation_id=request.operation_id,
        request_hash=request_hash,
    )


def _file_values(caller: Caller, owner: Owner, request: UploadRequest, file_id: UUID) -> dict[str, Any]:
    return {
        "file_id": file_id,
        "organization_id": owner.organization_id,
        "payer_id": caller.payer_id,
        "owner_kind": owner.kind.value,
        "owner_id": owner.id,
        "retention_expires_at": request.retention_expires_at,
        "association_kind": request.association and request.association.kind,
        "association_id": request.association and request.association.id,
    }
