"""Build the statement that sums the usage of a span of time by any dimensions. The span is exact to the microsecond.

The statement reads whole days from the daily sums, and the whole hours before and after them from the hourly sums
(`rollups.py`). It reads the partial hours at both ends, and the time after the mark of the rollups, from the
records.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from sqlalchemy import TextClause, text

SUMS = (
    *(
        "invocations",
        "prompt_tokens",
        "completion_tokens",
        "cached_tokens",
        "cache_write_tokens",
        "reasoning_tokens",
    ),
    "cost",
)


# docs/specification/credits.md#usage
class Dimension(StrEnum):
    """A dimension by which usage is grouped and filtered."""

    MODEL = "model"
    PRINCIPAL = "principal"
    DEPLOYMENT = "deployment"
    USER = "user"
    IDENTITY = "identity"
    KEY = "key"
    DISTRIBUTION = "distribution"

    @property
    def expression(self) -> str:
        """The SQL expression of the dimension's value, valid for records, hourly sums and daily sums."""
        return _EXPRESSIONS.get(self, f"{self.value}_id")

    @property
    def condition(self) -> str:
        """The SQL condition for the value in the parameter with the dimension's name."""
        sql_type = "text" if self is Dimension.MODEL else "uuid"
        return f"{self.expression} = CAST(:{self.value} AS {sql_type})"


_EXPRESSIONS = {
    Dimension.MODEL: "model",
    # The principal is the receiving identity, else the daemon that the call ran as, else the user.
    Dimension.PRINCIPAL: "coalesce(principal_id, identity_id, user_id)",
    Dimension.KEY: "api_key_id",
}


class Interval(StrEnum):
    """The length of a step in a time series. Steps begin on the hour or at midnight, UTC."""

    HOUR = "hour"
    DAY = "day"


# Pass the length in seconds and not in days: the length of a day depends on the time zone, so Postgres would
# compute it again for each compared row.
_STARTS_AT = "coalesce(CAST(:from AS timestamptz), now() - make_interval(secs => CAST(:length AS float8)))"
_ENDS_AT = "coalesce(CAST(:to AS timestamptz), now())"

# The span is split by bounds into five parts: records, hours, days, hours and records. Sums end at the mark; the
# sum of the hour that contains the mark covers only the time before the mark.
_SPAN = f"""
SELECT starts_at, pruned_to, least(hours_from, ends_at) AS head_to, hours_from,
    least(days_from, hours_to) AS hours_head_to,
    days_from, days_to, greatest(days_from, days_to) AS hours_tail_from, hours_to,
    greatest(hours_from, hours_to) AS tail_from, ends_at
FROM (
    SELECT *, date_trunc('day', hours_from - interval '1 microsecond', 'UTC') + interval '1 day' AS days_from,
        date_trunc('day', hours_to, 'UTC') AS days_to
    FROM (
        SELECT *, date_trunc('hour', starts_at - interval '1 microsecond', 'UTC') + interval '1 hour' AS hours_from,
            CASE WHEN ends_at < rolled_up_to THEN date_trunc('hour', ends_at, 'UTC') ELSE rolled_up_to END AS hours_to
        FROM usage_rollup, (
            SELECT {_STARTS_AT} AS starts_at, {_ENDS_AT} AS ends_at
        ) AS asked
    ) AS hours
) AS days
"""  # noqa: S608 (this module's names only)
# An hourly series reads all hours of the span. With bounds that the planner can estimate, the planner scans the
# table. With bounds from the subquery it expects few rows and would look up each row in the index. `IS TRUE`
# excludes the last bound from the estimate.
_ALL_HOURS = f"hour >= {_STARTS_AT} AND hour < {_ENDS_AT} AND (hour < (SELECT hours_to FROM span)) IS TRUE"  # noqa: S608
_HOURS = ("usage_hours", "hour", "sum(invocations)")
_DAYS = ("usage_days", "day", "sum(invocations)")
_RECORDS = ("usage_records", "occurred_at", "count(*)")
_EDGES = ((_RECORDS, "starts_at", "head_to"), (_RECORDS, "tail_from", "ends_at"))
_BY_DAYS = (
    (_HOURS, "hours_from", "hours_head_to"),
    (_DAYS, "days_from", "days_to"),
    (_HOURS, "hours_tail_from", "hours_to"),
)


@lru_cache(maxsize=256)
def statement(
    group_by: tuple[Dimension, ...],
    filters: frozenset[Dimension] = frozenset(),
    interval: Interval | None = None,
    *,
    of_all: bool = False,
    of_one_user: bool = False,
) -> TextClause:
    """Return the statement for these dimensions: the total first, then the groups by time and descending cost.

    The statement's parameters are `from` and `to`, or `length` in seconds; `limit`; and each filter by its name. It
    also needs `organization_id` unless `of_all`, and `own` (a user id) if `of_one_user`.
    """
    conditions = [dimension.condition for dimension in Dimension if dimension in filters]
    if not of_all:
        conditions.append("organization_id = CAST(:organization_id AS uuid)")
    if of_one_user:
        conditions.append("user_id = CAST(:own AS uuid)")
    aggregation = _Aggregation(
        keys=[dimension.expression for dimension in group_by], interval=interval, conditions=conditions
    )
    by_hours = interval is Interval.HOUR
    parts = [aggregation.sum_rows(_HOURS, _ALL_HOURS)] if by_hours else []
    between = _EDGES if by_hours else (*_BY_DAYS, *_EDGES)
    parts += [aggregation.sum_rows(rows, _within(rows, first, end)) for rows, first, end in between]
    return text(_whole(parts, [f"key_{place}" for place in range(len(group_by))], interval))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Aggregation:
    """The grouping and the conditions of a sum."""

    keys: Sequence[str]
    interval: Interval | None
    conditions: Sequence[str]

    def sum_rows(self, rows: tuple[str, str, str], within: str) -> str:
        """Return a select that sums the rows of a table within a part of the span."""
        table, moment, count = rows
        step = f"date_bin('1 {self.interval}', {moment}, 'epoch')"
        if self.interval is None:
            step = "CAST(NULL AS timestamptz)"
        elif moment == self.interval:  # each row is already the sum of one step, so use its time unchanged
            step = moment
        named = [f"{key} AS key_{place}" for place, key in enumerate(self.keys)]
        sums = [f"{count} AS invocations", *(f"sum({name}) AS {name}" for name in SUMS[1:])]
        return (
            f"SELECT {', '.join([f'{step} AS step', *named, *sums])} FROM {table}"  # noqa: S608 (this module's names only)
            f" WHERE {' AND '.join([*self.conditions, within])}"
            f" GROUP BY {', '.join(str(place) for place in range(1, len(self.keys) + 2))}"
        )


def _within(rows: tuple[str, str, str], first: str, end: str) -> str:
    """Return the condition for rows between two bounds of the span."""
    _, moment, _ = rows
    return f"{moment} >= (SELECT {first} FROM span) AND {moment} < (SELECT {end} FROM span)"  # noqa: S608


def _lacks_records(edge: str) -> str:
    """Return a column that is true if the span begins or ends within an hour whose records were pruned."""
    return (
        f"(SELECT {edge} < pruned_to AND {edge} <> date_trunc('hour', {edge}, 'UTC') FROM span)"  # noqa: S608
        f" AS {edge}_is_pruned"
    )


def _whole(parts: Sequence[str], keys: Sequence[str], interval: Interval | None) -> str:
    """Return the statement that adds the parts of the span up by group, and adds all groups up to the total."""
    groups = ", ".join(["step", *keys])
    order = ["is_total DESC", *(["step"] if interval else []), "cost DESC", "invocations DESC", *keys]
    return f"""
WITH span AS MATERIALIZED ({_SPAN}), used AS ({" UNION ALL ".join(parts)})
SELECT {groups}, grouping(step) = 1 AS is_total, (SELECT starts_at FROM span), (SELECT ends_at FROM span),
    {_lacks_records("starts_at")}, {_lacks_records("ends_at")},
    {", ".join(f"CAST(coalesce(sum({name}), 0) AS bigint) AS {name}" for name in SUMS)}
FROM used GROUP BY GROUPING SETS (({groups}), ())
ORDER BY {", ".join(order)} LIMIT CAST(:limit AS bigint)
"""  # noqa: S608 (this module's names only)
