"""Leases of turns: which worker process runs a turn, until when, and whether it may continue.

A lease lasts `LEASE_SECONDS` by the database's clock. One statement renews all leases of a process, every second. Each
write checks the lease, so a worker that has lost a lease writes nothing more (`agent_turns/task_log.py`). Renewals use
their own database connections, because turns may use all connections of the common pool.
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
    """The lease of a turn, with the turn's payer and deployment. `row` is the row that the claim has returned."""

    id: UUID
    turn_id: UUID
    task_id: UUID
    payer_id: UUID
    deployment_id: UUID
    row: Any = field(repr=False, compare=False)

    @classmethod
    def of(cls, row: Any) -> Self:
        """Return the lease in the row of a claim."""
        return cls(
            id=row.lease_id,
            turn_id=row.id,
            task_id=row.task_id,
            payer_id=row.tenant,
            deployment_id=row.member,
            row=row,
        )


class TurnLeases:
    """Claims and renews the leases of one process. Only one thread at a time may call `take`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._rotation = RoundRobin()
        self._unconfirmed: UUID | None = None
        """The lease id of a claim whose result is unknown, or None."""

    def take(self, full: Collection[Any] = ()) -> Lease | None:
        """Claim the next turn, except turns of the organizations in `full`. Return None if no turn is ready.

        Raises ServiceUnavailable. If the database committed the claim but the response was lost, the next call first
        releases the claimed turn.
        """
        if self._unconfirmed is not None:
            with self._database.autocommit() as session:
                session.execute(_RELEASE, {"unheard": self._unconfirmed})
        # Choose the lease id here and not in the database, so the next call finds a claim whose result was lost.
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
        """Return for each turn that is still leased whether the turn may continue.

        A turn may continue while its agent, payer and receiving identity are enabled. A turn of a remote agent also
        needs the agent's endpoint. Raises ServiceUnavailable.
        """
        with self._database.autocommit() as session:
            rows = session.execute(_CHECK, _lease_arrays(leases)).all()
        return {row.id: row.may_continue for row in rows}


def _lease_arrays(leases: Collection[Lease]) -> dict[str, list[str]]:
    return {
        "turn_ids": [str(lease.turn_id) for lease in leases],
        "lease_ids": [str(lease.id) for lease in leases],
    }


# A web process of the previous release sets `is_next` for every turn, so the claim also checks the order of the task's
# messages.
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
"""The values that release a turn's lease, so that any worker may claim the turn."""
# No worker has begun the turn, so the statement takes back the attempt that the claim counted.
_RELEASE = (
    update(task_turns)
    .where(task_turns.c.state == "running", task_turns.c.lease_id == bindparam("unheard"))
    .values(**REQUEUED, attempts=task_turns.c.attempts - 1)
)

# Skip locked rows: another transaction is writing an update, which also renews the lease, or is recovering the turn.
# If the database server crashes, the lease expires anyway, so the renewal does not wait for the disk.
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
