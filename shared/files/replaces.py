"""Replace a file's content with a new version, if the caller names the current version.

Of two replaces that expect the same version, the one that locks the file's row first wins; the other fails. Earlier
versions stay readable until the file ends. The owner and the retention do not change
(docs/specification/files.md#replace).
"""

from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from shared.credits.storage_billing.daily_charges import refuse_unpaid_storage
from shared.db.database import Database, Session
from shared.files.access import (
    UNEXPIRED,
    Revalidate,
    authorize,
    explain_denial,
    get_file,
    no_revalidation,
    refuse_ended,
)
from shared.files.blobs.base import BlobStore
from shared.files.errors import (
    OperationInProgress,
    PreconditionRequired,
    ReplaceNotSupported,
    VersionMismatch,
)
from shared.files.idempotency import (
    Operation,
    OperationKind,
    Prechecked,
    get_idempotency_state,
    operation_values,
    replay,
    serialized,
)
from shared.files.resources import File, Receipt, ReceivedContent
from shared.files.staging import DiscardSink, Receive, stage, staged_availability
from shared.identity.access.authorization import Actor
from shared.identity.access.callers import Caller
from shared.identity.access.permissions import Permission
from shared.identity.audit import RECORD_EVENT, event_parameters
from shared.identity.authentication.revalidation import authority


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceRequest:
    """The parameters of a replace, without its content.

    A request without the expected version or the expected revision is refused.
    """

    operation_id: UUID
    file_id: UUID
    expected_version_id: UUID | None
    expected_revision: int | None
    byte_size: int
    time_limit_seconds: float


# The UPDATE decides between concurrent writers: it waits for the row's lock and then evaluates its condition again.
_COMMIT = f"""
WITH file AS (
    UPDATE files SET current_version_id = :version_id, revision = revision + 1
    WHERE id = :file_id AND current_version_id = :expected_version_id AND revision = :expected_revision
        AND state = 'Available' AND {UNEXPIRED}
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
    WHERE {{require_authority}} RETURNING created_at
),
audit AS ({RECORD_EVENT} FROM version),
blob AS ({{record_staged}})
SELECT version.created_at, file.retention_expires_at, blob.version_id IS NOT NULL AS is_staged
FROM version CROSS JOIN file LEFT JOIN blob ON true
"""  # noqa: S608 (constants)


def replace(
    database: Database,
    store: BlobStore,
    actor: Actor,
    request: ReplaceRequest,
    receive: Receive,
    *,
    revalidate: Revalidate = no_revalidation,
) -> Receipt:
    """Store the content as the file's next version, and record the actor. A retry returns the first result.

    The commit fails if the caller was revoked during the reception. Raises FileNotFound, PermissionDenied,
    OperationConflict, OperationInProgress, ReplaceNotSupported, FileExpired, FileDeleted, PreconditionRequired,
    VersionMismatch, StorageUnpaid, the errors of content in `errors.py`, BlobStoreUnavailable, StorageFull,
    ServiceUnavailable.
    """
    caller = actor.caller
    file, prechecked = precheck_replace(database, store, caller, request)
    operation = prechecked.operation
    authorize_again = partial(_authorize_again, revalidate, caller, file)
    if prechecked.outcome is not None:
        content = receive(DiscardSink())
        authorize_again()
        return replay(store, prechecked.outcome, content)
    with stage(
        database, store, size=request.byte_size, time_limit_seconds=request.time_limit_seconds
    ) as staged:
        content = receive(staged)
        staged.seal()
        values = {
            **_expected(caller, file, request),
            **operation_values(operation, content),
            **_event(actor, file, staged.version_id),
        }
        with serialized(), explain_denial(authorize_again), staged.committing() as session:
            row = staged.write_rows(session, _COMMIT, values, content)
    if row is None:
        authorize_again()
        return _explain_conflict(database, store, caller, request, operation, content)
    return Receipt(
        version=staged.version(row, content, file_id=file.id, revision=file.revision + 1),
        purpose=file.purpose,
        retention_expires_at=row.retention_expires_at,
        availability=staged_availability(store),
        replayed=False,
    )


def precheck_replace(
    database: Database, store: BlobStore, caller: Caller, request: ReplaceRequest
) -> tuple[File, Prechecked]:
    """Make all checks that do not need the content, and find an earlier attempt's result.

    Raises the errors that `replace` raises before it receives content.
    """
    operation = _operation(caller, request)
    with database.autocommit() as session:
        # Read the file first: the operation's state depends on the file's payer.
        file = _get_file(session, store, caller, request)
        earlier = get_idempotency_state(session, operation, payer_id=file.payer_id)
    if earlier.outcome is None:
        _require_replaceable(file, request)
        refuse_unpaid_storage(is_refused=earlier.is_storage_refused)
    return file, Prechecked(
        operation=operation,
        outcome=earlier.outcome,
        owner_id=file.owner_id,
        organization_id=file.organization_id,
        payer_id=file.payer_id,
    )


def _authorize_again(revalidate: Revalidate, caller: Caller, file: File) -> None:
    authorize(
        revalidate(caller),
        Permission.FILE_UPDATE,
        owner_id=file.owner_id,
        organization_id=file.organization_id,
    )


def _expected(caller: Caller, file: File, request: ReplaceRequest) -> dict[str, Any]:
    return {
        "organization_id": file.organization_id,
        "authority": authority(
            caller, Permission.FILE_UPDATE, owner_id=file.owner_id, organization_id=file.organization_id
        ),
        "file_id": file.id,
        "expected_version_id": request.expected_version_id,
        "expected_revision": request.expected_revision,
    }


def _event(actor: Actor, file: File, version_id: UUID) -> dict[str, Any]:
    return event_parameters(
        actor,
        "file.content_replaced",
        file.id,
        organization_id=file.organization_id,
        version_id=version_id,
        instead_of=file.version.id,
    )


def _explain_conflict(
    database: Database,
    store: BlobStore,
    caller: Caller,
    request: ReplaceRequest,
    operation: Operation,
    content: ReceivedContent,
) -> Receipt:
    """Return the result of an earlier attempt that has won; otherwise raise the reason why no row was updated."""
    with database.autocommit() as session:
        earlier = get_idempotency_state(session, operation)
        file = _get_file(session, store, caller, request)
    if earlier.outcome is not None:
        return replay(store, earlier.outcome, content)
    _require_replaceable(file, request)
    # The file has the expected version, so the other writer has rolled back, and a retry can succeed.
    raise OperationInProgress


def _get_file(session: Session, store: BlobStore, caller: Caller, request: ReplaceRequest) -> File:
    return get_file(
        session, caller, request.file_id, Permission.FILE_UPDATE, pending=staged_availability(store)
    )


def _require_replaceable(file: File, request: ReplaceRequest) -> None:
    # Check permanent reasons first: a client must not read a newer version and retry if no retry can succeed.
    if not file.purpose.supports_replace:
        raise ReplaceNotSupported
    refuse_ended(file)
    if request.expected_version_id is None or request.expected_revision is None:
        raise PreconditionRequired
    if (request.expected_version_id, request.expected_revision) != (file.version.id, file.revision):
        raise VersionMismatch(versionId=file.version.id, revision=file.revision)


def _operation(caller: Caller, request: ReplaceRequest) -> Operation:
    return Operation.of(
        caller,
        OperationKind.REPLACE,
        request.operation_id,
        file=request.file_id,
        expected=(request.expected_version_id, request.expected_revision),
        byte_size=request.byte_size,
    )
