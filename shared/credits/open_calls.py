"""Count the open calls of all organizations, to compute each organization's share of the model service's capacity.

The counts are read from the open invocations, so the sweeps that recover lost holds also correct the counts.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from shared.db.database import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCalls:
    """The open calls in total and by provider, and the number of organizations that have open calls.

    `own` are the open calls of this process. The process counts these calls itself, so `total` and `by_provider`
    exclude them.
    """

    total: int
    organizations: int
    by_provider: Mapping[str, int]
    own: frozenset[UUID] = frozenset()


def count_open_calls(session: Session, own: Collection[UUID] = ()) -> OpenCalls:
    """Return the counts of other processes' open calls, and the set of this process's calls that are still open."""
    row = session.fetch_one(COUNT_OPEN_CALLS, {"own": [str(at) for at in own]})
    assert row is not None  # noqa: S101 (an aggregate has a row)
    total, organizations, by_provider, open_own = row
    return OpenCalls(
        total=int(total),
        organizations=int(organizations),
        by_provider=by_provider or {},
        own=frozenset(map(UUID, open_own or ())),
    )


# Count in the partial index of open invocations: every hold and settlement would have to write an index on
# `credit_balances.calls`.
COUNT_OPEN_CALLS = """
WITH open AS MATERIALIZED (
    SELECT id, organization_id, provider, id = ANY(%(own)s::uuid[]) AS is_own FROM invocations
    WHERE state IN ('held', 'dispatched', 'unresolved')
)
SELECT count(*) FILTER (WHERE NOT is_own) AS total, count(DISTINCT organization_id) AS organizations, (
    SELECT jsonb_object_agg(provider, calls) FROM (
        SELECT provider, count(*) AS calls FROM open WHERE NOT is_own AND provider IS NOT NULL GROUP BY provider
    ) AS counted
) AS by_provider, jsonb_agg(id) FILTER (WHERE is_own) AS own
FROM open
"""
