"""Idempotency keys: all attempts with the same executing identity and operationId have one effect and one result.

The first attempt commits the operation's row and its effect in one transaction. A retry with the same request and
content gets the first attempt's result; a retry with another request or content is refused. A concurrent attempt waits
at the unique key until the first attempt has committed (docs/specification/files.md#idempotency).
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Self
from uuid import UUID

from psycopg2.errors import UniqueViolation
from sqlalchemy import Select, Uuid, and_, bindparam, func, select
from sqlalchemy.exc import IntegrityError

from shared.credits.storage_billing.daily_charges import storage_is_refused
from shared.db.database import Database, LockTimeout, Session
from shared.db.statements import Prepared
from shared.files.blobs.base import BlobStore
from shared.files.errors import OperationConflict, OperationInProgress
from shared.files.resources import Purpose, Receipt, ReceivedContent, Version
from shared.files.staging import staged_availability
from shared.files.tables import files, operations, versions
from shared.identity.access.callers import Caller


class OperationKind(StrEnum):
    """The kinds of writes that have an operationId. The same operationId may be used once for each kind."""

    UPLOAD = "upload"
    REPLACE = "replace"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The key of one attempt, and a hash of all its parameters except the content."""

    executor_id: UUID
    kind: OperationKind
    operation_id: UUID
    request_hash: bytes

    @classmethod
    def of(cls, caller: Caller, kind: OperationKind, operation_id: UUID, **asked: Any) -> Self:
        """Return the operation for an attempt of a caller; `asked` are the request's parameters except the content."""
        return cls(
            # The executing identity and not the owner: two agents of one owner may choose the same operationId.
            executor_id=caller.executor.id,
            kind=kind,
            operation_id=operation_id,
            request_hash=hash_request(route=kind.value, **asked),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The effect of an operation's first attempt."""

    version: Version
    purpose: Purpose
    retention_expires_at: datetime | None
    content_hash: bytes | None
    completed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyState:
    """The state before an attempt: the database's time, and the outcome of an earlier attempt.

    `is_storage_refused` is true if a payer was named who owes for storage and so may not store more.
    """

    now: datetime
    outcome: Outcome | None
    is_storage_refused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Prechecked:
    """A write whose checks have passed and whose content may be received."""

    operation: Operation
    outcome: Outcome | None
    owner_id: UUID
    organization_id: UUID
    payer_id: UUID


def hash_request(**values: Any) -> bytes:
    """Return a hash of a request's parameters, independent of their order."""
    # Sort the keys: a client that retries may send its parameters in another order.
    return hashlib.sha256(json.dumps(values, default=str, sort_keys=True).encode()).digest()


def hash_content(content: ReceivedContent) -> bytes:
    """Return a hash of a request's content: its name, type and bytes."""
    return hash_request(
        file_name=content.file_name, media_type=content.media_type, sha256=content.sha256.hex()
    )


def get_idempotency_state(
    session: Session, operation: Operation, *, payer_id: UUID | None = None
) -> IdempotencyState:
    """Return the state of an operation. Raises OperationConflict if an earlier attempt had other parameters.

    `payer_id` is the payer of the content that the operation would store.
    """
    row: Any = session.fetch_one(_STATE, {**_key(operation), "payer_id": payer_id})
    if row.request_hash is not None and bytes(row.request_hash) != operation.request_hash:
        raise OperationConflict
    outcome = None if row.request_hash is None else _get_outcome(session, row)
    return IdempotencyState(now=row.now, outcome=outcome, is_storage_refused=row.is_storage_refused)


def get_outcome(database: Database, operation: Operation) -> Outcome:
    """Return the outcome that another attempt has just committed. Raises OperationInProgress if none has committed."""
    with database.autocommit() as session:
        outcome = get_idempotency_state(session, operation).outcome
    if outcome is None:
        raise OperationInProgress
    return outcome


def replay(store: BlobStore, outcome: Outcome, content: ReceivedContent) -> Receipt:
    """Return the first result of an operation. Raises OperationConflict if the content is not the first attempt's."""
    if outcome.content_hash != hash_content(content):
        raise OperationConflict
    return replayed_receipt(store, outcome)


def replayed_receipt(store: BlobStore, outcome: Outcome) -> Receipt:
    """Return the receipt of an earlier attempt's outcome, marked as a replay."""
    return Receipt(
        version=outcome.version,
        purpose=outcome.purpose,
        retention_expires_at=outcome.retention_expires_at,
        availability=staged_availability(store),
        replayed=True,
    )


@contextmanager
def serialized() -> Iterator[None]:
    """Translate the database errors of a commit that waited for another attempt with the same operationId.

    Raises OperationInProgress if the wait was too long, OperationConflict if the other attempt was for another file.
    """
    try:
        yield
    except LockTimeout:
        raise OperationInProgress from None
    except UniqueViolation:
        raise OperationConflict from None
    # SQLAlchemy wraps psycopg2's error if it ran the statement; `fetch_one` does not.
    except IntegrityError as error:
        if isinstance(error.orig, UniqueViolation):
            raise OperationConflict from None
        raise


def operation_values(operation: Operation, content: ReceivedContent | None) -> dict[str, Any]:
    """Return the columns of the operation's row for the statement that inserts the row together with the effect."""
    content_hash = None if content is None else hash_content(content)
    return {**_key(operation), "request_hash": operation.request_hash, "content_hash": content_hash}


def _key(operation: Operation) -> dict[str, Any]:
    return {
        "executor_id": operation.executor_id,
        "kind": operation.kind.value,
        "operation_id": operation.operation_id,
    }


def _get_outcome(session: Session, done: Any) -> Outcome:
    """Return the effect of an operation. The rows that describe the effect are kept after the file has ended."""
    row = session.execute(_DONE, {"version_id": done.version_id}).one()
    return Outcome(
        version=Version.of(row, row.id, row.file_id),
        purpose=Purpose(row.purpose),
        retention_expires_at=done.retention_expires_at,
        content_hash=done.content_hash and bytes(done.content_hash),
        completed_at=done.created_at,
    )


def _state_query() -> Select[Any]:
    one = select(func.now().label("now")).subquery()
    done = and_(
        operations.c.executor_id == bindparam("executor_id"),
        operations.c.kind == bindparam("kind"),
        operations.c.operation_id == bindparam("operation_id"),
    )
    columns = (
        operations.c.request_hash,
        operations.c.content_hash,
        operations.c.version_id,
        operations.c.retention_expires_at,
        operations.c.created_at,
    )
    is_refused = storage_is_refused(bindparam("payer_id", type_=Uuid)).label("is_storage_refused")
    return select(one.c.now, *columns, is_refused).select_from(one.outerjoin(operations, done))


# Use a second statement with the joins only if there was an earlier attempt, which is rare: planning the joins costs
# more than the first lookup.
_STATE = Prepared(_state_query())
_DONE = (
    select(versions, files.c.purpose)
    .join(files, files.c.id == versions.c.file_id)
    .where(versions.c.id == bindparam("version_id"))
)
