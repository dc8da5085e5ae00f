"""Delete a file. No request can read the file after the commit; a worker removes its bytes later.

Each use of a grant reads the file's state, so the file's grants end too. A file with references is not deleted
(docs/specification/files.md#delete).
"""

from datetime import datetime
from uuid import UUID

from sqlalchemy import func, insert, update

from shared import failpoints
from shared.db.database import Database, Session
from shared.files.access import get_file, lock_file, refuse_ended
from shared.files.errors import FileReferenced
from shared.files.idempotency import (
    Operation,
    OperationKind,
    get_idempotency_state,
    operation_values,
    serialized,
)
from shared.files.lifecycle.content_disposal import EndedFile, mark_for_deletion
from shared.files.lifecycle.garbage_collection import CollectGarbage
from shared.files.references import list_references
from shared.files.resources import Availability, Deletion
from shared.files.tables import files, operations
from shared.identity.access.authorization import Actor
from shared.identity.access.permissions import Permission
from shared.identity.audit import record


def delete(database: Database, actor: Actor, file_id: UUID, operation_id: UUID) -> Deletion:
    """Delete a file, and record the actor in the audit. A retry with the same operationId returns the first result.

    Raises FileNotFound, PermissionDenied, OperationConflict, OperationInProgress, FileExpired, FileDeleted,
    FileReferenced (with the references), ServiceUnavailable.
    """
    operation = Operation.of(actor.caller, OperationKind.DELETE, operation_id, file=file_id)
    with serialized(), database.transaction() as session:
        deletion = _delete(session, actor, file_id, operation)
    failpoints.hit("delete.committed")
    return deletion


def _delete(session: Session, actor: Actor, file_id: UUID, operation: Operation) -> Deletion:
    caller = actor.caller
    # Authorize before locking too: a caller without rights must not wait for the row, nor make others wait.
    get_file(session, caller, file_id, Permission.FILE_DELETE, pending=Availability.PENDING)
    lock_file(session, file_id)
    # Read again under the lock: now the row includes all concurrent writes and cannot change until the commit.
    file = get_file(session, caller, file_id, Permission.FILE_DELETE, pending=Availability.PENDING)
    earlier = get_idempotency_state(session, operation)
    if earlier.outcome is not None:
        return Deletion(file_id=file_id, deleted_at=earlier.outcome.completed_at, replayed=True)
    refuse_ended(file)
    references = list_references(session, file_id)
    if references:
        raise FileReferenced(
            references=[{"kind": at.kind, "referenceId": at.reference_id} for at in references]
        )
    deleted_at = _end(session, file_id)
    # Store the deadline with the operation too: a replay reports the deadline of the first attempt.
    row = operation_values(operation, None) | {"file_id": file_id, "version_id": file.version.id}
    session.execute(insert(operations).values(**row, retention_expires_at=file.retention_expires_at))
    mark_for_deletion(
        session, EndedFile(id=file_id, organization_id=file.organization_id, versions=file.revision)
    )
    # Sent after the commit; if the message is lost, the schedule's next job finds the rows.
    session.enqueue(CollectGarbage())
    record(
        session, actor, "file.deleted", file_id, organization_id=file.organization_id, owner_id=file.owner_id
    )
    failpoints.hit("delete.before_commit")
    return Deletion(file_id=file_id, deleted_at=deleted_at, replayed=False)


def _end(session: Session, file_id: UUID) -> datetime:
    statement = update(files).where(files.c.id == file_id).values(state="Deleted", ended_at=func.now())
    ended_at: datetime = session.execute(statement.returning(files.c.ended_at)).scalar_one()
    return ended_at
