"""Lease a row to a worker until a deadline, with the same SQL statements for every table of pending work.

    waiting ──claim──▶ running ──a step that names the token──▶ an end state, or waiting again
       ▲                  │
       └────mark_ready────┘ when the lease has expired: the worker died or stalled

A claim writes a fencing token, and the statement of every later step names this token (`held`). So a worker that
lost its lease changes nothing, however late it continues. `shared/fairness/fair_queueing.py` selects the next row
to claim.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedTable:
    """A table of pending work. The fields of this class name the columns and states of the table."""

    name: str
    waiting: str
    running: str
    fence: str
    next_fence: str
    """SQL expression: the next value of a counter, or a parameter."""
    until: str
    lease_end: str
    """SQL expression: the time at which a lease that is acquired now expires."""

    def claim(self, head: str, *, also: str = "", returning: str) -> str:
        """Return the statement that leases the row that `head`, a query of `next_round_robin`, selects."""
        return f"""
WITH head AS ({head})
UPDATE {self.name} SET state = '{self.running}', {self.fence} = {self.next_fence}{also}, {self.until} = {self.lease_end}
FROM head WHERE {self.name}.id = head.id RETURNING {returning}, head.tenant, head.member
"""  # noqa: S608 (names of columns, from the code)

    def mark_ready(self, *, also: str = "") -> str:
        """Return the statement that marks due rows, and rows with an expired lease, as ready."""
        return f"""
UPDATE {self.name} SET state = '{self.waiting}', is_ready = true{also} WHERE id = ANY (ARRAY(
    SELECT id FROM {self.name}
    WHERE (state = '{self.running}' OR (state = '{self.waiting}' AND NOT is_ready)) AND {self.until} <= now()
    ORDER BY {self.until} LIMIT 1000 FOR UPDATE SKIP LOCKED
))
"""  # noqa: S608 (names of columns, from the code)

    @property
    def held(self) -> str:
        """The SQL condition that the claim with the fencing token `:token` still leases the row `:id`."""
        return f"id = :id AND {self.fence} = :token AND state = '{self.running}'"
