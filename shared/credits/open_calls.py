"""Count the open calls of all organizations, from which their shares of the model service's capacity are computed.

The counts are read from the open invocations, so the sweeps that recover lost holds also correct the counts.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from shared.db.database import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCalls:
    """The open calls in total and by provider, and the number of organizations that have any.

    `own` are the open calls of this process. It counts them itself, so they are not in `total` and `by_provider`.
    """

    total: int
    organizations: int
    by_provider: Mapping[str, int]
    own: frozenset[UUID] = frozenset()


def count_open_calls(session: Session, own: Collection[UUID] = ()) -> OpenCalls:
    """Return the counts of open calls without this process's own, and which of its own are still open."""
    row = session.fetch_one(COUNT_OPEN_CALLS, {"own": [str(at) for at in own]})
    assert row is not None  # noqa: S101 (an aggregate has a row)
    total, organizations, by_provider, open_own = row
    return OpenCalls(
        total=int(total),
        organizations=int(organizations),
        by_provider=by_provider or {},
        own=frozenset(map(UUID, open_own or ())),
    )


# Read from the partial index of open invocations. An index on `credit_balances.calls` would be written by every hold
# and settlement.
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
