"""Claim messages that are due, and record what became of an attempt.

A claim moves `due_at` to the end of its lease, so that a message whose worker died is simply due again. One claimer at
a time looks for work, which makes the bound on attempts per destination exact. `claims` counts the times a message was
claimed: only the newest claim records a failure, but an arrival counts whoever saw it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from sqlalchemy import text

from shared.database import Session
from shared.deliveries.channels import Message
from shared.deliveries.due import find_due
from shared.deliveries.schedule import SPREAD

LEASE = timedelta(seconds=60)
"""Longer than any attempt lasts."""
_CLAIMING = 7_140_331_005

_LOCK = text("SELECT pg_advisory_xact_lock(:key)")
_CLAIM = text(
    """
UPDATE deliveries SET state = 'Sending', claims = claims + 1, due_at = now() + :lease,
    lapses = lapses + CAST(state = 'Sending' AS integer)
WHERE id = ANY (CAST(:ids AS uuid[])) AND state IN ('Waiting', 'Sending') AND due_at <= now()
RETURNING id, claims
"""
)
_LOAD = text(
    """
SELECT id, kind, destination_id, content_type, body, address_encrypted, attempts, attempt_limit, lapses
FROM deliveries WHERE id = :id AND claims = :claim AND state = 'Sending'
"""
)
_DELIVERED = text(
    """
UPDATE deliveries
SET state = 'Delivered', attempts = attempts + 1, last_status = :status, last_code = NULL, last_attempt_at = now(),
    ended_at = now(), body = NULL, address_encrypted = NULL
WHERE id = :id AND state <> 'Delivered'
"""
)
_FAILED = text(
    """
UPDATE deliveries
SET state = 'Waiting', attempts = attempts + 1, lapses = 0, last_status = :status, last_code = :code,
    last_attempt_at = now(), due_at = now() + :wait * (1 + :spread * random())
WHERE id = :id AND claims = :claim AND state = 'Sending'
"""
)
_DEAD = text(
    """
UPDATE deliveries
SET state = 'Dead', attempts = attempts + 1, last_status = :status, last_code = :code, last_attempt_at = now(),
    ended_at = now()
WHERE id = :id AND claims = :claim AND state = 'Sending'
"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to attempt one message until the lease ends."""

    id: UUID
    claim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A claimed message, and where it stands."""

    kind: str
    message: Message
    attempts: int
    attempt_limit: int
    lapses: int
    """Claims since the last recorded attempt that ended without a record: their workers died."""


def claim_due(session: Session, *, limit: int) -> Sequence[Claim]:
    """Claim so many due messages at most, those that wait longest first."""
    session.execute(_LOCK, {"key": _CLAIMING})
    ids = find_due(session, limit=limit)
    if not ids:
        return ()
    rows = session.execute(_CLAIM, {"ids": [str(at) for at in ids], "lease": LEASE})
    return [Claim(id=row.id, claim=row.claims) for row in rows]


def find_claimed(session: Session, claim: Claim) -> Claimed | None:
    """Read a claimed message; None when the claim has passed to somebody else."""
    row = session.execute(_LOAD, {"id": claim.id, "claim": claim.claim}).one_or_none()
    if row is None:
        return None
    message = Message(
        id=row.id,
        destination_id=row.destination_id,
        content_type=row.content_type,
        body=bytes(row.body),
        sealed_address=None if row.address_encrypted is None else bytes(row.address_encrypted),
    )
    return Claimed(
        kind=row.kind,
        message=message,
        attempts=row.attempts,
        attempt_limit=row.attempt_limit,
        lapses=row.lapses,
    )


def record_delivered(session: Session, claim: Claim, *, status: int) -> None:
    """Note that the message has arrived, and forget its body."""
    session.execute(_DELIVERED, {"id": claim.id, "status": status})


def record_failed(
    session: Session, claim: Claim, *, status: int | None, code: str | None, wait_seconds: int
) -> None:
    """Note that an attempt failed, and when the next is due."""
    session.execute(
        _FAILED,
        {
            "id": claim.id,
            "claim": claim.claim,
            "status": status,
            "code": code,
            "wait": timedelta(seconds=wait_seconds),
            "spread": SPREAD,
        },
    )


def record_dead(session: Session, claim: Claim, *, status: int | None, code: str | None) -> None:
    """Note that the message was given up."""
    session.execute(_DEAD, {"id": claim.id, "claim": claim.claim, "status": status, "code": code})
