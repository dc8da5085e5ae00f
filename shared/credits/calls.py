"""How many calls are open, over all organizations: what shares of the model service's capacity are worked out from.

The count is a column of the balance, changed by the functions that hold credits and end holds, in the same statement:
nothing counts calls beside it, and what recovers holds recovers it.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.database import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCalls:
    """Calls that are open at a moment, and how many organizations have any."""

    total: int
    organizations: int


def count_open_calls(session: Session) -> OpenCalls:
    """Count the open calls of everybody."""
    row = session.fetch_one(_COUNT, {})
    assert row is not None  # noqa: S101 (an aggregate has a row)
    return OpenCalls(total=int(row[0]), organizations=int(row[1]))


_COUNT = "SELECT coalesce(sum(calls), 0), count(*) FROM credit_balances WHERE calls > 0"
