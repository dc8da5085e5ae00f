"""How many calls are open, over all organizations: what shares of the model service's capacity are worked out from.

An organization's count, which its share is compared with, is a column of its balance, changed by the functions that
hold credits and end holds, in the same statement. What all have open is counted over the open invocations. Nothing
counts calls beside them, and what recovers holds recovers the counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shared.database import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCalls:
    """Calls that are open at a moment, in all and by provider, and how many organizations have any."""

    total: int
    organizations: int
    by_provider: Mapping[str, int]


def count_open_calls(session: Session) -> OpenCalls:
    """Count the open calls of everybody."""
    row = session.fetch_one(COUNT_OPEN_CALLS, {})
    assert row is not None  # noqa: S101 (an aggregate has a row)
    return OpenCalls(total=int(row[0]), organizations=int(row[1]), by_provider=row[2] or {})


# From the open invocations: an index of the balances by their count would make every hold and settle write to it.
COUNT_OPEN_CALLS = """
WITH open AS MATERIALIZED (
    SELECT organization_id, provider, count(*) AS calls FROM invocations
    WHERE state IN ('held', 'dispatched', 'unresolved') GROUP BY organization_id, provider
)
SELECT coalesce(sum(calls), 0), count(DISTINCT organization_id), (
    SELECT jsonb_object_agg(provider, calls) FROM (
        SELECT provider, sum(calls) AS calls FROM open WHERE provider IS NOT NULL GROUP BY provider
    ) AS counted
)
FROM open
"""
