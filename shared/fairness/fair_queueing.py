"""Fair queueing: claim waiting rows round robin over tenants, and within a tenant over its members, in one statement.

A tenant is an organization; a member is what shares the organization's turn: a distribution, a destination, a
deployment. However many rows one tenant has waiting, another's first row is claimed after one row of each.

    _ROTATION = Rotation()          # one for each kind of work of a process
    _CLAIM = text(f'''
        WITH head AS ({next_round_robin(
            table="jobs", tenant="organization_id", member="distribution_id",
            ready="state = 'Waiting' AND is_ready AND due_at <= now()", order="due_at",
        )})
        UPDATE jobs SET state = 'Running', is_ready = false, due_at = now() + :lease
        FROM head WHERE jobs.id = head.id RETURNING jobs.*, head.tenant, head.member''')

    _MARK_READY = text("UPDATE jobs SET state = 'Waiting', is_ready = true WHERE id = ANY (ARRAY(SELECT id FROM jobs
        WHERE (state = 'Running' OR (state = 'Waiting' AND NOT is_ready)) AND due_at <= now()
        ORDER BY due_at LIMIT 1000 FOR UPDATE SKIP LOCKED))")

    row = _ROTATION.claim(
        session, _CLAIM, {"lease": LEASE}, mark_ready=_MARK_READY, full_tenants=pool.tenants_at_limit()
    )

What the statement rests on:
- An index on (tenant, member, order) for the rows that are ready. The keys are compared as a range: an equality would
  drop them from the order, and the planner would walk the index on the time and filter everybody else's rows.
- Only rows that may be claimed now are ready. Those that wait for a later attempt, or are leased, are marked ready when
  their time comes by a statement of their own, through an index on the time of exactly these rows: it finds expired
  leases, too. So 100,000 rows that are due tomorrow cost a claim nothing.
- Tenants at their share of this process's pool, and members at a limit, are gaps between the ranges: their rows are not
  looked at, however many there are.

Each process remembers whom it served last, and begins somewhere. No row says whose turn it is: a second claimer would
find nothing until the first commits. Locks are SKIP LOCKED, so that claimers never wait for each other.
"""

import random
import re
import threading
import time
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import Executable

from shared import failpoints
from shared.db.database import Session
from shared.db.statements import Prepared
from shared.fairness.admission import UNFAIR

REMEMBERED_TENANTS = 16
"""Tenants whose last served member is remembered; each costs an idle claim two more looks into the index."""
MARK_READY_SECONDS = 1.0
"""How often, at the most, a busy process looks for rows whose time has come; an idle one looks at every claim."""
SHARES = 10
"""In a fair batch, a tenant's rows are a tenth of it until every tenant has as many."""
_HALF = 128
_LAST = (1 << _HALF) - 1
_BOTTOM = 0
_TOP = (1 << 2 * _HALF) - 1
_START_SPAN_MS = 365 * 24 * 3600 * 1000

Range = tuple[int, int]
"""From a tenant and member to others, both excluded; a tenant's id is the upper half, a member's the lower."""


def next_round_robin(*, table: str, tenant: str, member: str, ready: str, order: str) -> str:
    """Write the query that locks the next row in turn and gives its `id`, `tenant` and `member`.

    `ready` is the condition of the rows that may be claimed now; its parameters are the caller's.
    """
    # No ORDER BY of the ranges: they come in their order, and the first that has a row ends the search.
    return f"""
    SELECT head.id, head.tenant, head.member
    FROM unnest(
        CAST(:low_tenants AS uuid[]), CAST(:low_members AS uuid[]),
        CAST(:high_tenants AS uuid[]), CAST(:high_members AS uuid[])
    ) AS gap (low_tenant, low_member, high_tenant, high_member)
    CROSS JOIN LATERAL (
        SELECT id, {tenant} AS tenant, {member} AS member FROM {table}
        WHERE {ready} AND ({tenant}, {member}) > (gap.low_tenant, gap.low_member)
            AND ({tenant}, {member}) < (gap.high_tenant, gap.high_member)
        ORDER BY {tenant}, {member}, {order} LIMIT 1 FOR UPDATE SKIP LOCKED
    ) head LIMIT 1"""  # noqa: S608 (names of columns, from the code)


def first_of_each(*, table: str, tenant: str, ready: str, order: str, key: str = "id") -> str:
    """Write the query for the first `:each` due rows of every tenant: `id`, `tenant`, and `place` in the tenant's.

    For sweeps that end many rows at once. It walks an index on (tenant, order) of the `ready` rows from tenant to
    tenant, so it costs as much as is due.
    """
    # The tenant as a range and not as an equality, for the reason that stands at the top.
    return f"""
    {tenants_with(table=table, tenant=tenant, ready=ready)}
    SELECT head.id, tenants.tenant, head.place FROM tenants CROSS JOIN LATERAL (
        SELECT {key} AS id, row_number() OVER (ORDER BY {tenant}, {order}) AS place FROM {table}
        WHERE {ready} AND {tenant} >= tenants.tenant AND {tenant} <= tenants.tenant AND {order} <= now()
        ORDER BY {tenant}, {order} LIMIT :each
    ) head"""  # noqa: S608 (names of columns, from the code)


def tenants_with(*, table: str, tenant: str, ready: str) -> str:
    """Write the beginning of a query: `tenants` has every `tenant` with `ready` rows, and one that is NULL.

    It walks an index that begins with the tenant, of the `ready` rows, from each to the next.
    """
    return f"""
    WITH RECURSIVE tenants AS (
        (SELECT {tenant} AS tenant FROM {table} WHERE {ready} ORDER BY {tenant} LIMIT 1)
        UNION ALL
        SELECT (
            SELECT {tenant} FROM {table} WHERE {ready} AND {tenant} > tenants.tenant ORDER BY {tenant} LIMIT 1
        )
        FROM tenants WHERE tenants.tenant IS NOT NULL
    )"""  # noqa: S608 (names of columns, from the code)


def to_driver_parameters(statement: str) -> str:
    """Write the parameters of a statement, `:name`, as the driver has them (docs/style.md#sql)."""
    return re.sub(r"(?<!:):(\w+)", r"%(\1)s", statement)


def select_round_robin(session: Session, *, oldest: Executable, fair: Executable, limit: int) -> list[UUID]:
    """Find the ids of so many due rows: with `oldest` while these are all, else also with `fair`.

    Both take `:limit`; `fair`, made with `first_of_each`, takes `:each`. So the walk over tenants is paid only when
    more is due than one batch.
    """
    found = list(session.execute(oldest, {"limit": limit}).scalars())
    if len(found) < limit:
        return found
    first = session.execute(fair, {"limit": limit, "each": max(1, limit // SHARES)}).scalars()
    return list(dict.fromkeys([*first, *found]))[:limit]


class RoundRobin:
    """Whose turn it is in this process; may be shared by threads."""

    def __init__(self) -> None:
        """Begin at a random tenant, so that processes that start together do not serve the same one."""
        # Ids begin with their time: any 128 random bits would come after all of them.
        started = time.time_ns() // 1_000_000
        self._after = random.randrange(started - _START_SPAN_MS, started) << 80  # noqa: S311 (no secret)
        self._members: dict[int, int] = {}
        self._marked_at = -MARK_READY_SECONDS
        self._lock = threading.Lock()

    def claim(
        self,
        session: Session,
        statement: Executable | Prepared | str,
        values: Mapping[str, Any] | None = None,
        *,
        mark_ready: Executable | None = None,
        full_tenants: Collection[Any] = (),
        full_members: Collection[tuple[UUID, UUID]] = (),
    ) -> Any | None:
        """Run a claiming statement made with `next_round_robin`; give its row, or None when no other waits.

        `mark_ready` marks the rows whose time has come; it runs once in a while, and when nothing is ready. Passes
        over `full_tenants` (strangers among them have no rows) and `full_members`, each named with its tenant.
        A text is a statement in the driver's own form (`to_driver_parameters`).
        """
        ranges = self.parameters(full_tenants=full_tenants, full_members=full_members)
        values = {**(values or {}), **ranges}
        if mark_ready is not None and self._is_time_to_mark():
            session.execute(mark_ready)
        row = _claim(session, statement, values)
        if row is None and mark_ready is not None and session.execute(mark_ready).rowcount:
            row = _claim(session, statement, values)
        if row is None:
            self._forget()
        else:
            self._remember(row.tenant.int, row.member.int)
        return row

    def parameters(
        self, *, full_tenants: Collection[Any] = (), full_members: Collection[tuple[UUID, UUID]] = ()
    ) -> dict[str, str]:
        """Give the statement's ranges, in order: after the tenant that was served last, then from the beginning."""
        if failpoints.is_armed(UNFAIR):
            return _parameters([(_BOTTOM, _TOP)])
        full = {at.int for at in full_tenants if isinstance(at, UUID)}
        points = sorted(_key(tenant.int, member.int) for tenant, member in full_members)
        with self._lock:
            turn = _key(self._after, _LAST)
            whole = [*self._between(turn, _TOP, full), *self._between(_BOTTOM, turn + 1, full)]
        return _parameters([cut for each in whole for cut in _without(points, each)])

    def _between(self, low: int, high: int, full: set[int]) -> Iterator[Range]:
        """Give the ranges of a run of whole tenants; a tenant that was served begins after the member served."""
        for tenant in sorted(full | self._members.keys()):
            first, last = _key(tenant, 0), _key(tenant, _LAST)
            if not low < last < high:
                continue
            yield low, first
            low = last
            if tenant not in full:
                served = _key(tenant, self._members[tenant])
                yield served, last
                yield first, served + 1
        yield low, high

    def _remember(self, tenant: int, member: int) -> None:
        with self._lock:
            self._after = tenant
            if len(self._members) >= REMEMBERED_TENANTS and tenant not in self._members:
                # Any of them: with the oldest, many tenants in turn would each be forgotten before their next.
                del self._members[random.choice(list(self._members))]  # noqa: S311 (no secret)
            self._members[tenant] = member

    def _is_time_to_mark(self) -> bool:
        now = time.monotonic()
        with self._lock:
            is_time = now - self._marked_at >= MARK_READY_SECONDS
            if is_time:
                self._marked_at = now
        return is_time

    def _forget(self) -> None:
        with self._lock:
            self._members.clear()


def _claim(session: Session, statement: Executable | Prepared | str, values: Mapping[str, Any]) -> Any | None:
    if isinstance(statement, Prepared | str):
        return session.fetch_one(statement, values)
    return session.execute(statement, values).one_or_none()


def _key(tenant: int, member: int) -> int:
    return tenant << _HALF | member


def _without(points: list[int], whole: Range) -> Iterator[Range]:
    """Cut these points out of a range; drop what is empty."""
    low, high = whole
    for point in points[bisect_left(points, low) : bisect_left(points, high)]:
        if point - low > 1:
            yield low, point
        low = point
    if high - low > 1:
        yield low, high


def _parameters(ranges: list[Range]) -> dict[str, str]:
    return {
        "low_tenants": _array(low >> _HALF for low, _ in ranges),
        "low_members": _array(low & _LAST for low, _ in ranges),
        "high_tenants": _array(high >> _HALF for _, high in ranges),
        "high_members": _array(high & _LAST for _, high in ranges),
    }


def _array(values: Iterable[int]) -> str:
    """Write an array of UUIDs as Postgres reads it."""
    return "{" + ",".join(str(UUID(int=value)) for value in values) + "}"
