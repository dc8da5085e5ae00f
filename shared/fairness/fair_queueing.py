"""Fair queueing: claim waiting rows round robin over tenants and each tenant's members, in one statement.

A tenant is an organization. A member of a tenant is a distribution, a destination or a deployment; the members
share the tenant's turn. Even if one tenant has many waiting rows, another tenant's first row is claimed after at
most one row of each other tenant.

    _ROTATION = RoundRobin()          # one for each kind of work in a process
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

The statement relies on:
- An index on (tenant, member, order) over the ready rows. The statement compares tenant and member by a range. If
  it compared them by equality, the planner would drop them from the sort order, walk the index on time and filter
  out the rows of all other tenants.
- `is_ready` on exactly the rows that may be claimed now. A separate statement marks rows with a later attempt, or
  with an expired lease, as ready when they are due. It finds these rows by an index on their due time. So 100,000
  rows that are due tomorrow do not slow a claim down.
- Gaps between the ranges for tenants and members at their limit, so that none of their rows is read.

Each process remembers the tenant it served last and starts at a random one. The position is not stored in a row,
because a second claimer would then wait for the commit of the first one. Rows are locked with SKIP LOCKED, so
claimers never wait for each other.
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
"""Tenants with a remembered last member; each adds two index lookups to an idle claim."""
MARK_READY_SECONDS = 1.0
"""Shortest interval at which a busy process marks due rows; an idle process marks at every claim."""
SHARES = 10
"""In a fair batch each tenant first gets a tenth of the rows."""
# Bits of a UUID.
_HALF = 128
_LAST = (1 << _HALF) - 1
_BOTTOM = 0
_TOP = (1 << 2 * _HALF) - 1
# Start within the ids of the last year, because most active tenants were created in that time.
_START_SPAN_MS = 365 * 24 * 3600 * 1000

Range = tuple[int, int]
"""From one (tenant, member) to another, both excluded; the tenant's id is the upper 128 bits."""


def next_round_robin(*, table: str, tenant: str, member: str, ready: str, order: str) -> str:
    """Return the query that locks the next row in the round robin and selects its `id`, `tenant` and `member`.

    `ready` is the condition of claimable rows; the caller binds its parameters.
    """
    # Use no ORDER BY over the ranges: unnest keeps their order, and LIMIT 1 stops at the first range with a row.
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
    """Return the query for the first `:each` due rows of every tenant: `id`, `tenant`, `place` within the tenant.

    Sweeps that end many rows at once use this query. It walks an index on (tenant, order) over the `ready` rows
    from tenant to tenant, so its cost follows the number of due rows.
    """
    # Compare the tenant by a range and not by equality: see the first point of the module's docstring.
    return f"""
    {tenants_with(table=table, tenant=tenant, ready=ready)}
    SELECT head.id, tenants.tenant, head.place FROM tenants CROSS JOIN LATERAL (
        SELECT {key} AS id, row_number() OVER (ORDER BY {tenant}, {order}) AS place FROM {table}
        WHERE {ready} AND {tenant} >= tenants.tenant AND {tenant} <= tenants.tenant AND {order} <= now()
        ORDER BY {tenant}, {order} LIMIT :each
    ) head"""  # noqa: S608 (names of columns, from the code)


def tenants_with(*, table: str, tenant: str, ready: str) -> str:
    """Return a WITH clause: `tenants` lists every `tenant` with `ready` rows, and ends with one NULL.

    The clause jumps through an index that starts with the tenant, with one lookup for each tenant.
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
    """Return a statement with its `:name` parameters in the driver's form (docs/style.md#sql)."""
    return re.sub(r"(?<!:):(\w+)", r"%(\1)s", statement)


def select_round_robin(session: Session, *, oldest: Executable, fair: Executable, limit: int) -> list[UUID]:
    """Return the ids of at most `limit` due rows, shared fairly among tenants.

    `oldest` runs first; if it fills the batch, `fair` (made with `first_of_each`) runs too. So the walk over
    tenants costs time only if more rows are due than fit into one batch. Both take `:limit`, and `fair` also
    `:each`.
    """
    found = list(session.execute(oldest, {"limit": limit}).scalars())
    if len(found) < limit:
        return found
    first = session.execute(fair, {"limit": limit, "each": max(1, limit // SHARES)}).scalars()
    return list(dict.fromkeys([*first, *found]))[:limit]


class RoundRobin:
    """The position of a process in the round robin over tenants; thread-safe."""

    def __init__(self) -> None:
        """Start at a random tenant, so that processes started together do not all serve the same one."""
        # Ids start with their creation time, so choose a random time: 128 random bits would nearly always lie after
        # all ids.
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
        """Run a claiming statement made with `next_round_robin`; return its row, or None if no row may be claimed.

        `mark_ready` is the statement that marks due rows as ready. It runs at intervals, and if no row is ready.
        Rows of `full_tenants` and `full_members` (pairs of tenant and member) are skipped; anonymous clients in
        `full_tenants` have no rows. A statement that is a string must be in the driver's form
        (`to_driver_parameters`).
        """
        ranges = self.parameters(full_tenants=full_tenants, full_members=full_members)
        values = {**(values or {}), **ranges}
        if mark_ready is not None and self._is_time_to_mark():
            session.execute(mark_ready)
        row = _claim(session, statement, values)
        # If no row was ready, mark due rows and try again: a row may have become due since the last marking.
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
        """Return the statement's ranges in order: first those after the last served tenant, then all earlier ones."""
        if failpoints.is_armed(UNFAIR):
            return _parameters([(_BOTTOM, _TOP)])
        full = {at.int for at in full_tenants if isinstance(at, UUID)}
        points = sorted(_key(tenant.int, member.int) for tenant, member in full_members)
        with self._lock:
            # Use `turn + 1`, because both ends of a range are excluded.
            turn = _key(self._after, _LAST)
            whole = [*self._between(turn, _TOP, full), *self._between(_BOTTOM, turn + 1, full)]
        return _parameters([cut for each in whole for cut in _without(points, each)])

    def _between(self, low: int, high: int, full: set[int]) -> Iterator[Range]:
        """Yield the ranges between two keys. A remembered tenant's range starts after its last served member."""
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
                # Evict a random tenant: with many tenants, evicting the oldest would forget each tenant just before
                # its next turn.
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
            # Forget the members if no row was claimable: remembered members would only cost index lookups.
            self._members.clear()


def _claim(session: Session, statement: Executable | Prepared | str, values: Mapping[str, Any]) -> Any | None:
    if isinstance(statement, Prepared | str):
        return session.fetch_one(statement, values)
    return session.execute(statement, values).one_or_none()


def _key(tenant: int, member: int) -> int:
    return tenant << _HALF | member


def _without(points: list[int], whole: Range) -> Iterator[Range]:
    """Yield what remains of a range without these points; empty ranges are dropped."""
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
    """Return a UUID array in Postgres' text form."""
    return "{" + ",".join(str(UUID(int=value)) for value in values) + "}"
