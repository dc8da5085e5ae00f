"""Claim messages round-robin, and record the result of an attempt.

Organizations take turns, and so do the destinations of each organization (`shared/fairness/fair_queueing.py`).
`is_ready` marks the rows that may be claimed. A claim moves `due_at` to the end of the claim's lease. Claimers run
one at a time, so the limit per destination is exact. The column `claims` counts the claims of a message: only the
newest claim may record a failure, but any claim may record a delivery.
"""

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Executable, text

from shared.db.advisory_locks import AdvisoryLock, take
from shared.db.database import Session
from shared.db.leases import LeasedTable
from shared.deliveries.channels import Message
from shared.deliveries.ordering import lock_order, release_next
from shared.deliveries.schedule import SPREAD
from shared.fairness.fair_queueing import RoundRobin, next_round_robin

LEASE = timedelta(seconds=60)
"""The time until another worker may claim the message again: longer than any attempt takes."""

_UNDER_WAY = text(
    """
SELECT organization_id, destination_id, count(*) AS number, min(in_flight_limit) AS most FROM deliveries
WHERE state = 'Sending' AND due_at > now() GROUP BY organization_id, destination_id
"""
)
_LEASED = LeasedTable(
    name="deliveries",
    waiting="Waiting",
    running="Sending",
    fence="claims",
    next_fence="claims + 1",
    until="due_at",
    lease_end="now() + :lease",
)
_HEAD = next_round_robin(
    table="deliveries",
    tenant="organization_id",
    member="destination_id",
    ready="state = 'Waiting' AND is_ready AND due_at <= now()",
    order="due_at",
)
CLAIM = _LEASED.claim(
    _HEAD,
    also=", is_ready = false",
    returning="deliveries.id, deliveries.claims, deliveries.in_flight_limit, place IS NOT NULL AS is_ordered",
)
MARK_READY = _LEASED.mark_ready(also=", lapses = lapses + CAST(state = 'Sending' AS integer)")
_CLAIM, _MARK_READY = text(CLAIM), text(MARK_READY)
_LOAD = text(
    f"""
SELECT id, kind, destination_id, content_type, body, address_encrypted, sequence, now() AS attempted_at, attempts,
    attempt_limit, lapses
FROM deliveries WHERE {_LEASED.held}
"""  # noqa: S608 (a condition from the code)
)
# Do not compare the fencing token: the message was delivered, even if another worker has claimed it since.
_DELIVERED = text(
    """
UPDATE deliveries
SET state = 'Delivered', attempts = attempts + 1, last_status = :status, last_code = NULL, last_attempt_at = now(),
    ended_at = now(), body = NULL, address_encrypted = NULL
WHERE id = :id AND state <> 'Delivered'
"""
)
_FAILED = text(
    f"""
UPDATE deliveries
SET state = 'Waiting', attempts = attempts + 1, lapses = 0, is_ready = false, last_status = :status, last_code = :code,
    last_attempt_at = now(), due_at = now() + :wait * (1 + :spread * random())
WHERE {_LEASED.held}
"""  # noqa: S608 (a condition from the code)
)
# Postpone all ready messages of the destination: the same breaker is open for them. Skip locked rows, even the claimed
# message's row, because a statement that gives up a destination locks many rows and would make this one wait.
_POSTPONE = text(
    f"""
UPDATE deliveries SET state = 'Waiting', is_ready = false, due_at = now() + :wait
WHERE id = ANY (ARRAY(SELECT id FROM deliveries WHERE {_LEASED.held} FOR UPDATE SKIP LOCKED) || ARRAY(
    SELECT id FROM deliveries
    WHERE organization_id = :organization_id AND destination_id = :destination_id AND state = 'Waiting' AND is_ready
    LIMIT 1000 FOR UPDATE SKIP LOCKED
))
"""  # noqa: S608 (a condition from the code)
)
_DEAD = text(
    f"""
UPDATE deliveries
SET state = 'Dead', attempts = attempts + 1, last_status = :status, last_code = :code, last_attempt_at = now(),
    ended_at = now()
WHERE {_LEASED.held}
"""  # noqa: S608 (a condition from the code)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to attempt one message until the lease ends."""

    id: UUID
    claim: int
    organization_id: UUID
    destination_id: UUID
    is_ordered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A claimed message and its counters."""

    kind: str
    message: Message
    attempts: int
    attempt_limit: int
    lapses: int
    """The number of consecutive claims whose workers died before they recorded a result."""


class Claimer:
    """Claims messages one after the other in one transaction, during which no other process can claim."""

    def __init__(self, session: Session, rotation: RoundRobin) -> None:
        self._session = session
        self._rotation = rotation
        take(session, AdvisoryLock.DELIVERY_CLAIMS)
        rows = session.execute(_UNDER_WAY).all()
        self._under_way = {(row.organization_id, row.destination_id): (row.number, row.most) for row in rows}

    def claim(self, full_organizations: Collection[Hashable] = ()) -> Claim | None:
        """Claim the next message in turn. Return None if no message may be claimed.

        Skips the organizations in `full_organizations`, and destinations at their limit of messages in flight.
        """
        row = self._rotation.claim(
            self._session,
            _CLAIM,
            {"lease": LEASE},
            mark_ready=_MARK_READY,
            full_tenants=full_organizations,
            full_members=[key for key, (number, most) in self._under_way.items() if number >= most],
        )
        if row is None:
            return None
        # Keep the lowest limit of the destination's messages in flight, which applies to all of them.
        number, most = self._under_way.get((row.tenant, row.member), (0, row.in_flight_limit))
        self._under_way[row.tenant, row.member] = number + 1, min(most, row.in_flight_limit)
        return Claim(
            id=row.id,
            claim=row.claims,
            organization_id=row.tenant,
            destination_id=row.member,
            is_ordered=row.is_ordered,
        )


def find_claimed(session: Session, claim: Claim) -> Claimed | None:
    """Return a claimed message; None if another process has claimed it since."""
    row = session.execute(_LOAD, {"id": claim.id, "token": claim.claim}).one_or_none()
    if row is None:
        return None
    message = Message(
        id=row.id,
        destination_id=row.destination_id,
        content_type=row.content_type,
        body=bytes(row.body),
        sealed_address=None if row.address_encrypted is None else bytes(row.address_encrypted),
        sequence=row.sequence,
        attempted_at=row.attempted_at,
    )
    return Claimed(
        kind=row.kind,
        message=message,
        attempts=row.attempts,
        attempt_limit=row.attempt_limit,
        lapses=row.lapses,
    )


def record_delivered(session: Session, claim: Claim, *, status: int) -> None:
    """Record that a message was delivered, and delete its body."""
    _end(session, claim, _DELIVERED, {"id": claim.id, "status": status})


def record_failed(
    session: Session, claim: Claim, *, status: int | None, code: str | None, wait_seconds: int
) -> None:
    """Record a failed attempt, and make the next attempt due in `wait_seconds`."""
    session.execute(
        _FAILED,
        {
            "id": claim.id,
            "token": claim.claim,
            "status": status,
            "code": code,
            "wait": timedelta(seconds=wait_seconds),
            "spread": SPREAD,
        },
    )


def postpone(session: Session, claim: Claim, *, wait_seconds: float) -> None:
    """Postpone a message and all other ready messages of its destination, without counting an attempt."""
    session.execute(
        _POSTPONE,
        {
            "id": claim.id,
            "token": claim.claim,
            "organization_id": claim.organization_id,
            "destination_id": claim.destination_id,
            "wait": timedelta(seconds=wait_seconds),
        },
    )


def record_dead(session: Session, claim: Claim, *, status: int | None, code: str | None) -> None:
    """Record that no further attempt to deliver the message is made."""
    _end(session, claim, _DEAD, {"id": claim.id, "token": claim.claim, "status": status, "code": code})


def _end(session: Session, claim: Claim, statement: Executable, values: Mapping[str, Any]) -> None:
    """End a message, and release the next ordered message to the same destination."""
    if not claim.is_ordered:
        session.execute(statement, values)
        return
    lock_order(session, claim.destination_id)
    session.execute(statement, values)
    release_next(session, claim.destination_id)
