"""Compare the hourly sums of usage with the records, and the daily ones with the hours, by every dimension."""

from sqlalchemy import text

from shared.credits.usage.usage_query import SUMS

_GROUP = "model, user_id, identity_id, principal_id, deployment_id, api_key_id, distribution_id"


def _differences(step: str, exact: str, kept: str) -> str:
    """Give the steps in which what is kept is not what it should be; both are sums with a step, a group and figures."""
    figures = [(name, f"sum(CASE WHEN is_exact THEN {name} ELSE -{name} END)") for name in SUMS]
    return f"""
SELECT 'rollup' AS kind, to_char(step AT TIME ZONE 'UTC', '{step}') AS reference,
    coalesce(sum(cost) FILTER (WHERE is_exact), 0) AS expected,
    coalesce(sum(cost) FILTER (WHERE NOT is_exact), 0) AS found
FROM (SELECT true AS is_exact, {exact} UNION ALL SELECT false, {kept}) AS both_sides
GROUP BY step, {_GROUP} HAVING {" OR ".join(f"{difference} <> 0" for _, difference in figures)}
"""  # noqa: S608 (this module's names only)


def _sums(step: str, invocations: str, table: str) -> str:
    return (
        f"{step} AS step, {_GROUP}, {invocations} AS invocations, {', '.join(SUMS[1:])} FROM {table}"
        " WHERE organization_id = CAST(:organization_id AS uuid)"
    )


_MARK = "(SELECT rolled_up_to FROM usage_rollup)"
_PRUNED = "(SELECT pruned_to FROM usage_rollup)"
_MIDNIGHT = "(SELECT date_trunc('day', rolled_up_to, 'UTC') FROM usage_rollup)"
_HOURS = _differences(
    'YYYY-MM-DD"T"HH24"Z"',
    _sums("date_trunc('hour', occurred_at, 'UTC')", "1", "usage_records")
    + f" AND occurred_at < {_MARK} AND occurred_at >= {_PRUNED}",
    _sums("hour", "invocations", "usage_hours") + f" AND hour >= {_PRUNED}",
)
_DAYS = _differences(
    "YYYY-MM-DD",
    _sums("date_trunc('day', hour, 'UTC')", "invocations", "usage_hours") + f" AND hour < {_MIDNIGHT}",
    _sums("day", "invocations", "usage_days"),
)
_OF_ORGANIZATION = "organization_id = CAST(:organization_id AS uuid)"
# Hours whose records may be gone: all of them are what is left and what was pruned.
_PRUNED_HOURS = f"""
SELECT 'rollup' AS kind, NULL AS reference, pruned + kept AS expected, in_hours AS found FROM (
    SELECT (SELECT coalesce(sum(amount), 0) FROM pruned_usage WHERE {_OF_ORGANIZATION} AND budget_id IS NULL) AS pruned,
        (SELECT coalesce(sum(cost), 0) FROM usage_records WHERE {_OF_ORGANIZATION} AND occurred_at < {_PRUNED}) AS kept,
        (SELECT coalesce(sum(cost), 0) FROM usage_hours WHERE {_OF_ORGANIZATION} AND hour < {_PRUNED}) AS in_hours
) AS sums WHERE pruned + kept <> in_hours
"""  # noqa: S608 (this module's names only)
ROLLUPS = text(f"({_HOURS} LIMIT :most) UNION ALL ({_DAYS} LIMIT :most) UNION ALL ({_PRUNED_HOURS})")
