"""How many calls are open, over all organizations: what shares of the model service's capacity are worked out from.

An organization's count is a column of its balance, changed by the functions that hold credits and end holds, in the
same statement; a provider's is that of its open invocations. Nothing counts calls beside them, and what recovers holds
recovers the counts.
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
    row = session.fetch_one(_COUNT, {})
    assert row is not None  # noqa: S101 (an aggregate has a row)
    return OpenCalls(total=int(row[0]), organizations=int(row[1]), by_provider=row[2] or {})


_COUNT = """
SELECT coalesce(sum(calls), 0), count(*), (
    SELECT jsonb_object_agg(provider, calls) FROM (
        SELECT provider, count(*) AS calls FROM invocations
        WHERE state IN ('held', 'dispatched', 'unresolved') AND provider IS NOT NULL GROUP BY provider
    ) AS counted
)
FROM credit_balances WHERE calls > 0
"""
