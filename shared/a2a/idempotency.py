"""Idempotency keys: accept a message once, however often it is sent with the same `Idempotency-Key`.

A key is unique for a caller, a principal and an agent. The transaction that accepts the message stores the key. Keys
are deleted after `OPERATION_RETENTION_DAYS`.
"""

import hashlib
from collections.abc import Collection
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from shared.a2a.agents.directory import Scope
from shared.a2a.errors import IdempotencyKeyReused
from shared.a2a.exact_json import render
from shared.a2a.tables import send_operations
from shared.a2a.types import SendMessageRequest
from shared.db.database import Session


def claim_key(session: Session, scope: Scope, key: str, request_hash: bytes, turn_id: UUID) -> UUID:
    """Return `turn_id`, or the turn of an earlier request that used the same key.

    Raises IdempotencyKeyReused if the earlier request had another message.
    """
    name = {
        "caller_id": scope.caller_id,
        "principal_id": scope.principal_id,
        "deployment_id": scope.deployment_id,
        "key": key,
    }
    taken = insert(send_operations).values(**name, request_hash=request_hash, turn_id=turn_id)
    if session.execute(taken.on_conflict_do_nothing()).rowcount:
        return turn_id
    conditions = [send_operations.c[column] == value for column, value in name.items()]
    # The insert waited for the other transaction, so its row is visible now.
    row = session.execute(select(send_operations).where(*conditions)).one()
    if row.request_hash != request_hash:
        raise IdempotencyKeyReused
    first: UUID = row.turn_id
    return first


def hash_request(request: SendMessageRequest, requested_extensions: Collection[str]) -> bytes:
    """Return a digest of the client's request. Two requests with the same digest count as the same request."""
    canonical = render([request.to_wire(), sorted(requested_extensions)])
    return hashlib.sha256(canonical.encode()).digest()
