"""Count open calls over all organizations, from which shares of the model service's capacity are worked out.

The open invocations themselves are counted, so whatever recovers holds recovers the counts.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from shared.db.database import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCalls:
    """Calls that are open at a moment, in all and by provider, and how many organizations have any.

    `own` are those of the asker, which it counts itself: they are in neither number of calls.
    """

    total: int
    organizations: int
    by_provider: Mapping[str, int]
    own: frozenset[UUID] = frozenset()


def count_open_calls(session: Session, own: Collection[UUID] = ()) -> OpenCalls:
    """Count the open calls of everybody besides the asker's own, and tell which of its own are open."""
    row = session.fetch_one(COUNT_OPEN_CALLS, {"own": [str(at) for at in own]})
    assert row is not None  # noqa: S101 (an aggregate has a row)
    total, organizations, by_provider, open_own = row
    return OpenCalls(
        total=int(total),
        organizations=int(organizations),
        by_provider=by_provider or {},
        own=frozenset(map(UUID, open_own or ())),
    )


# From the open invocations: an index of the balances by their count would make every hold and settle write to it.
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
