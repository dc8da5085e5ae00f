"""The lease of a row: which worker has it, and until when; in the same words for every table of waiting work.

    waiting ──claim──▶ running ──a step that names the token──▶ an end, or waiting again
       ▲                  │
       └────mark_ready────┘ when the lease has ended: its worker died, or has stalled

A claim writes a fencing token, and every later step names it (`held`): a worker that was given up, however late it
comes back, changes nothing. Who is next is another module's (`shared/fairness/fair_queueing.py`).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedTable:
    """A table whose rows wait, and are worked on under a lease; the names of columns are the table's own."""

    name: str
    waiting: str
    running: str
    fence: str
    next_fence: str
    """In SQL: the next number of a counter, or a parameter."""
    until: str
    lease_end: str
    """In SQL: when a lease taken now ends."""

    def claim(self, head: str, *, also: str = "", returning: str) -> str:
        """Write the statement that leases the row of `head`, a query made with `next_round_robin`."""
        return f"""
WITH head AS ({head})
UPDATE {self.name} SET state = '{self.running}', {self.fence} = {self.next_fence}{also}, {self.until} = {self.lease_end}
FROM head WHERE {self.name}.id = head.id RETURNING {returning}, head.tenant, head.member
"""  # noqa: S608 (names of columns, from the code)

    def mark_ready(self, *, also: str = "") -> str:
        """Write the statement that marks rows as ready whose time has come, or whose lease has ended."""
        return f"""
UPDATE {self.name} SET state = '{self.waiting}', is_ready = true{also} WHERE id = ANY (ARRAY(
    SELECT id FROM {self.name}
    WHERE (state = '{self.running}' OR (state = '{self.waiting}' AND NOT is_ready)) AND {self.until} <= now()
    ORDER BY {self.until} LIMIT 1000 FOR UPDATE SKIP LOCKED
))
"""  # noqa: S608 (names of columns, from the code)

    @property
    def held(self) -> str:
        """The condition, in SQL, that `:id` is still the row of the claim whose fencing token is `:token`."""
        return f"id = :id AND {self.fence} = :token AND state = '{self.running}'"
