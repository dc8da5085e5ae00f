"""Upload agent output as a new file of the caller's owner, exactly once per operationId.

Specified in docs/specification/files.md#upload.
"""

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from shared.credits.storage_billing.daily_charges import refuse_unpaid_storage
from shared.db.database import Database
from shared.errors import PermissionDenied
from shared.files.access import Revalidate, authorize_creation, explain_denial, no_revalidation
from shared.files.blobs.base import BlobStore
from shared.files.idempotency import (
    Operation,
    OperationKind,
    Prechecked,
    get_idempotency_state,
    get_outcome,
    operation_values,
    replay,
    serialized,
)
from shared.files.resources import Purpose, Receipt
from shared.files.retention import check_deadline
from shared.files.staging import DiscardSink, Receive, stage, staged_availability
from shared.identity.access.callers import Caller, Owner
from shared.identity.access.permissions import Permission
from shared.identity.authentication.revalidation import authority
from shared.identity.errors import PayerMismatch
from shared.ids import new_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Association:
    """A resource that the new file belongs to, stored as a reference."""

    kind: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadRequest:
    """The parameters of an upload, without its content."""

    operation_id: UUID
    organization_id: UUID | None
    byte_size: int
    retention_expires_at: datetime | None
    association: Association | None
    time_limit_seconds: float


# One statement has the whole effect and needs one round trip. It inserts all rows, or none if the operation was already
# executed.
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
        revision, retention_expires_at, distribution_id)
    SELECT file_id, :organization_id, :payer_id, 'AgentArtifact', :owner_kind, :owner_id, 'Available', :version_id,
        1, CAST(:retention_expires_at AS timestamptz), CAST(:distribution_id AS uuid)
    FROM operation RETURNING id
),
version AS (
    INSERT INTO file_versions (id, file_id, revision, file_name, media_type, byte_size, content_sha256)
    SELECT :version_id, id, 1, :file_name, :media_type, :byte_size, :content_sha256 FROM file
    WHERE {require_authority} RETURNING created_at
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
    revalidate: Revalidate = no_revalidation,
) -> Receipt:
    """Store the content as a new file of the caller's owner. A retry returns the first result.

    The reception of content may take hours, so the commit checks the caller's rights again.

    Raises OwnerRequired, PermissionDenied, PayerMismatch, OperationConflict, OperationInProgress, ValidationFailed,
    StorageUnpaid, the errors of content in `errors.py`, BlobStoreUnavailable, StorageFull, ServiceUnavailable.
    """
    owner, prechecked = precheck_upload(database, caller, request)
    operation = prechecked.operation
    authorize_again = partial(_authorize_again, revalidate, caller, owner)
    if prechecked.outcome is not None:
        # Read the body although the result is known: only its digest shows that this is the same request. Then
        # authorize the caller again: a caller that was revoked while it sent the body must not get a description of
        # the file.
        content = receive(DiscardSink())
        authorize_again()
        return replay(store, prechecked.outcome, content)
    file_id = new_id()
    with stage(
        database, store, size=request.byte_size, time_limit_seconds=request.time_limit_seconds
    ) as staged:
        content = receive(staged)
        staged.seal()
        values = {**_file_values(caller, owner, request, file_id), **operation_values(operation, content)}
        with serialized(), explain_denial(authorize_again), staged.committing() as session:
            row = staged.write_rows(session, _COMMIT, values, content)
    # Another attempt with this operationId committed first.
    if row is None:
        authorize_again()
        return replay(store, get_outcome(database, operation), content)
    return Receipt(
        version=staged.version(row, content, file_id=file_id, revision=1),
        # Every upload has this purpose. Only `imports.py` stores messaging media.
        purpose=Purpose.AGENT_ARTIFACT,
        retention_expires_at=request.retention_expires_at,
        availability=staged_availability(store),
        replayed=False,
    )


def precheck_upload(database: Database, caller: Caller, request: UploadRequest) -> tuple[Owner, Prechecked]:
    """Make all checks that do not need the content, and find an earlier attempt's result.

    Raises the errors that `upload` raises before it receives content.
    """
    owner = _authorize(caller, request)
    operation = _operation(caller, owner, request)
    with database.autocommit() as session:
        earlier = get_idempotency_state(session, operation, payer_id=caller.payer_id)
    # A retry skips these checks: its file is stored already, and its deadline and credit were accepted then.
    if earlier.outcome is None:
        check_deadline(Purpose.AGENT_ARTIFACT, request.retention_expires_at, now=earlier.now)
        refuse_unpaid_storage(is_refused=earlier.is_storage_refused)
    return owner, Prechecked(
        operation=operation,
        outcome=earlier.outcome,
        owner_id=owner.id,
        organization_id=owner.organization_id,
        payer_id=caller.payer_id or owner.organization_id,
    )


def _authorize(caller: Caller, request: UploadRequest) -> Owner:
    owner = authorize_creation(caller)
    # The parameter only confirms the payer: a client cannot choose another.
    if request.organization_id is not None and request.organization_id != caller.payer_id:
        raise PayerMismatch
    return owner


def _authorize_again(revalidate: Revalidate, caller: Caller, owner: Owner) -> None:
    if authorize_creation(revalidate(caller)) != owner:
        raise PermissionDenied("The caller may no longer store files for the owner of this upload.")


def _operation(caller: Caller, owner: Owner, request: UploadRequest) -> Operation:
    return Operation.of(
        caller,
        OperationKind.UPLOAD,
        request.operation_id,
        owner=owner.id,
        payer=caller.payer_id,
        byte_size=request.byte_size,
        retention_expires_at=request.retention_expires_at,
        association=request.association and (request.association.kind, request.association.id),
    )


def _file_values(caller: Caller, owner: Owner, request: UploadRequest, file_id: UUID) -> dict[str, Any]:
    return {
        "file_id": file_id,
        "organization_id": owner.organization_id,
        "payer_id": caller.payer_id,
        "owner_kind": owner.kind.value,
        "owner_id": owner.id,
        "distribution_id": caller.distribution_id,
        "retention_expires_at": request.retention_expires_at,
        "authority": authority(
            caller, Permission.FILE_CREATE, owner_id=owner.id, organization_id=owner.organization_id
        ),
        "association_kind": request.association and request.association.kind,
        "association_id": request.association and request.association.id,
    }
