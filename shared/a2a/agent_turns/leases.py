"""Leases of turns: which worker process runs a turn, until when, and whether it may continue.

A lease lasts `LEASE_SECONDS` by the database's clock. One statement renews all leases of a process, every second. A
lease is a fence: a worker that lost it writes nothing more (`tasks/log.py`). Renewals need their own connections,
because turns may hold all others.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from uuid import UUID, uuid4

from sqlalchemy import bindparam, text, update

from shared.a2a.tables import task_turns
from shared.db.database import Database
from shared.db.leases import LeasedTable
from shared.fairness.fair_queueing import RoundRobin, next_round_robin, to_driver_parameters

LEASE_SECONDS = 4.5
"""A process that renews no lease for this long loses its turns."""
RENEWAL_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The lease of a turn, its payer and its agent's deployment; `row` is what the claim has read."""

    id: UUID
    turn_id: UUID
    task_id: UUID
    payer_id: UUID
    deployment_id: UUID
    row: Any = field(repr=False, compare=False)

    @classmethod
    def of(cls, row: Any) -> Self:
        """Return the lease of a claim's row."""
        return cls(
            id=row.lease_id,
            turn_id=row.id,
            task_id=row.task_id,
            payer_id=row.tenant,
            deployment_id=row.member,
            row=row,
        )


class TurnLeases:
    """Claims and renews the leases of one process; only one thread at a time claims."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._rotation = RoundRobin()
        self._unconfirmed: UUID | None = None
        """The lease of a claim without a known result."""

    def take(self, full: Collection[Any] = ()) -> Lease | None:
        """Claim the next turn, of no organization in `full`. Return None if there is none.

        Raises ServiceUnavailable. If the database claimed a turn all the same, the next call releases it first.
        """
        if self._unconfirmed is not None:
            with self._database.autocommit() as session:
                session.execute(_RELEASE, {"unheard": self._unconfirmed})
        # Chosen here and not by the database, so a claim without a result can be found again.
        self._unconfirmed = uuid4()
        with self._database.autocommit() as session:
            values = {"lease_id": self._unconfirmed, "seconds": LEASE_SECONDS}
            row = self._rotation.claim(session, _CLAIM, values, full_tenants=full)
        self._unconfirmed = None
        return Lease.of(row) if row is not None else None

    def renew(self, leases: Collection[Lease]) -> None:
        """Renew leases that are still held. Raises ServiceUnavailable."""
        with self._database.autocommit() as session:
            session.fetch_one(_RENEW, {**_lease_arrays(leases), "seconds": LEASE_SECONDS})

    def check(self, leases: Collection[Lease]) -> Mapping[UUID, bool]:
        """Return for each turn that is still leased whether it may continue.

        It may continue while all that it works for is enabled, and, if it is a remote agent's, the endpoint exists.
        Raises ServiceUnavailable.
        """
        with self._database.autocommit() as session:
            rows = session.execute(_CHECK, _lease_arrays(leases)).all()
        return {row.id: row.may_continue for row in rows}


def _lease_arrays(leases: Collection[Lease]) -> dict[str, list[str]]:
    return {
        "turn_ids": [str(lease.turn_id) for lease in leases],
        "lease_ids": [str(lease.id) for lease in leases],
    }


# The order among a task's messages is checked besides `is_next`, because a web process of the previous release sets the
# mark for every turn.
_NEXT = next_round_robin(
    table="task_turns",
    tenant="payer_id",
    member="deployment_id",
    ready="""state = 'queued' AND is_next AND NOT EXISTS (
            SELECT FROM task_turns earlier WHERE earlier.task_id = task_turns.task_id
                AND earlier.message < task_turns.message AND earlier.state <> 'done')""",
    order="created_at",
)
_LEASED = LeasedTable(
    name="task_turns",
    waiting="queued",
    running="running",
    fence="lease_id",
    next_fence=":lease_id",
    until="lease_until",
    lease_end="clock_timestamp() + make_interval(secs => :seconds)",
)


def claim_statement(head: str) -> str:
    """Return the statement that leases the turn of `head`, a query of `next_round_robin`."""
    return _LEASED.claim(head, also=", attempts = attempts + 1", returning="task_turns.*")


def claim_and_read_statement(claim: str) -> str:
    """Return a claim that also reads what the worker needs for the turn, in the driver's parameter style."""
    return to_driver_parameters(
        f"""
WITH turn AS ({claim})
SELECT turn.*, given.* FROM turn CROSS JOIN LATERAL
    read_claimed_turn(turn.task_id, turn.message, turn.deployment_id, turn.behavior_id, turn.owner_id) given
"""  # noqa: S608 (names of columns, from the code)
    )


CLAIM = claim_statement(_NEXT)
_CLAIM = claim_and_read_statement(CLAIM)

REQUEUED: Mapping[str, Any] = {"state": "queued", "lease_id": None, "lease_until": None}
"""The columns of a turn without a lease, so that any worker may claim it."""
# No worker has begun the turn, so this is no attempt.
_RELEASE = (
    update(task_turns)
    .where(task_turns.c.state == "running", task_turns.c.lease_id == bindparam("unheard"))
    .values(**REQUEUED, attempts=task_turns.c.attempts - 1)
)

# A locked row is being written or taken back; that transaction decides. A renewal need not be durable: if the server
# crashes, the lease expires anyway. So it does not wait for the disk.
_RENEW = """
WITH relaxed AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),
held AS MATERIALIZED (
    SELECT task_turns.id FROM task_turns
    JOIN unnest(%(turn_ids)s::uuid[], %(lease_ids)s::uuid[]) AS mine (id, lease_id) USING (id, lease_id)
    FOR NO KEY UPDATE OF task_turns SKIP LOCKED
), renewed AS (
    UPDATE task_turns SET lease_until = clock_timestamp() + make_interval(secs => %(seconds)s)
    FROM held WHERE task_turns.id = held.id
)
SELECT count(*) FROM relaxed
"""

_CHECK = text(
    """
SELECT turn.id, deployments.disabled_at IS NULL AND daemon.disabled_at IS NULL AND owner.disabled_at IS NULL
    AND distributions.disabled_at IS NULL AND organizations.suspended_at IS NULL AND payer.suspended_at IS NULL
    AND (sent.turn_id IS NULL OR endpoint.deployment_id IS NOT NULL) AS may_continue
FROM unnest(CAST(:turn_ids AS uuid[]), CAST(:lease_ids AS uuid[])) AS mine (id, lease_id)
JOIN task_turns turn USING (id, lease_id)
JOIN tasks ON tasks.id = turn.task_id
LEFT JOIN deployments ON deployments.id = tasks.deployment_id
LEFT JOIN identities daemon ON daemon.id = deployments.daemon_identity_id
LEFT JOIN organizations ON organizations.id = deployments.organization_id
LEFT JOIN organizations payer ON payer.id = turn.payer_id
LEFT JOIN identities owner ON owner.id = turn.owner_id
LEFT JOIN distributions ON distributions.id = turn.distribution_id
LEFT JOIN remote_turns sent ON sent.turn_id = turn.id
LEFT JOIN deployment_endpoints endpoint ON endpoint.deployment_id = tasks.deployment_id
"""
)
