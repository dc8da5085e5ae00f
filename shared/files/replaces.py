"""Replace a file's content: a new version of the same file, if the caller knows the current one.

Specified in docs/specification/files.md#replace.

Of two replaces that expect the same version exactly one wins, by the row lock. Earlier versions stay stored and
readable until the file ends. Owner and retention stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from uuid import UUID

from sqlalchemy.exc import IntegrityError

from shared.credits.storage import refuse_unpaid_storage
from shared.database import Database, LockTimeout, Session
from shared.files.access import Recheck, as_it_was, authorize, get_file, refuse_ended
from shared.files.blobs.base import Blob, BlobStore
from shared.files.errors import (
    OperationConflict,
    OperationInProgress,
    PreconditionRequired,
    ReplaceNotSupported,
    VersionMismatch,
)
from shared.files.operations import (
    Operation,
    OperationKind,
    ReceivedPart,
    get_standing,
    hash_request,
)
from shared.files.resources import File, Receipt, Version
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
from shared.identity.callers import Caller
from shared.identity.permissions import Permission
from shared.ids import new_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceRequest:
    """What a replace asks for, besides its content; without expectations it is refused."""

    operation_id: UUID
    file_id: UUID
    expected_version_id: UUID | None
    expected_revision: int | None
    byte_size: int
    time_limit_seconds: float


# The UPDATE decides: it waits for a concurrent writer's lock and then looks at the row as that writer left it.
_COMMIT = """
WITH file AS (
    UPDATE files SET current_version_id = :version_id, revision = revision + 1
    WHERE id = :file_id AND current_version_id = :expected_version_id AND revision = :expected_revision
        AND state = 'Available' AND (retention_expires_at IS NULL OR retention_expires_at > clock_timestamp())
    RETURNING id, revision, retention_expires_at
),
operation AS (
    INSERT INTO file_operations
        (executor_id, kind, operation_id, request_hash, content_hash, file_id, version_id, retention_expires_at)
    SELECT :executor_id, :kind, :operation_id, :request_hash, :content_hash, id, :version_id, retention_expires_at
    FROM file
),
version AS (
    INSERT INTO file_versions (id, file_id, revision, file_name, media_type, byte_size, content_sha256)
    SELECT :version_id, id, revision, :file_name, :media_type, :byte_size, :content_sha256 FROM file
    RETURNING created_at
),
blob AS ({record_staged})
SELECT version.created_at, file.retention_expires_at, blob.version_id IS NOT NULL AS is_staged
FROM version CROSS JOIN file LEFT JOIN blob ON true
"""


def replace(
    database: Database,
    store: BlobStore,
    caller: Caller,
    request: ReplaceRequest,
    receive: Receive,
    *,
    recheck: Recheck = as_it_was,
) -> Receipt:
    """Store the content as the file's next version; a retry gets the first result.

    The caller is authorized again once the content has been received, which may take hours.

    Raises FileNotFound, PermissionDenied, OperationConflict, OperationInProgress, ReplaceNotSupported, FileExpired,
    FileDeleted, PreconditionRequired, VersionMismatch, StorageUnpaid, the errors of `body_errors.py`,
    BlobStoreUnavailable, StorageFull, Unavailable.
    """
    operation = _operation(caller, request)
    with database.autocommit() as session:
        file = _get_file(session, store, caller, request)
        standing = get_standing(session, operation, payer_id=file.payer_id)
    confirm = partial(_confirm, caller, file, recheck)
    if standing.outcome is not None:
        part = receive(None)
        confirm()
        return replay(store, standing.outcome, part)
    _require_replaceable(file, request)
    refuse_unpaid_storage(is_refused=standing.is_storage_refused)
    return _store(database, store, caller, file, request, operation, receive, confirm)


def _confirm(caller: Caller, file: File, recheck: Recheck) -> None:
    current = recheck(caller)
    authorize(current, Permission.FILE_UPDATE, owner_id=file.owner_id, organization_id=file.organization_id)


def _store(
    database: Database,
    store: BlobStore,
    caller: Caller,
    file: File,
    request: ReplaceRequest,
    operation: Operation,
    receive: Receive,
    confirm: Confirm,
) -> Receipt:
    statement = commit_statement(_COMMIT, is_recorded=store.records_before_receiving)
    values = {
        "file_id": file.id,
        "expected_version_id": request.expected_version_id,
        "expected_revision": request.expected_revision,
    }

    def commit(session: Session, part: ReceivedPart, blob: Blob) -> Receipt | None:
        row = session.execute(statement, values | commit_values(operation, part, blob)).one_or_none()
        version = committed_version(row, part, blob, file_id=file.id, revision=file.revision + 1)
        return (
            None
            if version is None or row is None
            else _receipt(store, file, version, row.retention_expires_at)
        )

    try:
        part, receipt = stage_and_commit(
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
    except IntegrityError:
        # The same operationId was committed for another file in the meantime.
        raise OperationConflict from None
    return receipt or _explain_loss(database, store, caller, request, operation, part)


def _explain_loss(
    database: Database,
    store: BlobStore,
    caller: Caller,
    request: ReplaceRequest,
    operation: Operation,
    part: ReceivedPart,
) -> Receipt:
    """Find out to whom a replace lost: to its own first attempt, to the file's end, or to another replace."""
    with database.autocommit() as session:
        standing = get_standing(session, operation)
        file = _get_file(session, store, caller, request)
    if standing.outcome is not None:
        return replay(store, standing.outcome, part)
    _require_replaceable(file, request)
    raise OperationInProgress


def _get_file(session: Session, store: BlobStore, caller: Caller, request: ReplaceRequest) -> File:
    return get_file(
        session, caller, request.file_id, Permission.FILE_UPDATE, pending=staged_availability(store)
    )


def _require_replaceable(file: File, request: ReplaceRequest) -> None:
    if not file.purpose.supports_replace:
        raise ReplaceNotSupported
    refuse_ended(file)
    if request.expected_version_id is None or request.expected_revision is None:
        raise PreconditionRequired
    if (request.expected_version_id, request.expected_revision) != (file.version.id, file.revision):
        raise VersionMismatch(versionId=file.version.id, revision=file.revision)


def _receipt(
    store: BlobStore, file: File, version: Version, retention_expires_at: datetime | None
) -> Receipt:
    return Receipt(
        version=version,
        purpose=file.purpose,
        retention_expires_at=retention_expires_at,
        availability=staged_availability(store),
        replayed=False,
    )


def _operation(caller: Caller, request: ReplaceRequest) -> Operation:
    request_hash = hash_request(
        route="replace",
        file=request.file_id,
        expected=(request.expected_version_id, request.expected_revision),
        byte_size=request.byte_size,
    )
    return Operation(
        executor_id=caller.executor.id,
        kind=OperationKind.REPLACE,
        operation_id=request.operation_id,
        request_hash=request_hash,
    )
