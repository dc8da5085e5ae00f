"""The cube of usage: one statement that sums a span of time by any dimensions, exact to the microsecond.

Whole hours come from the hourly sums (`rollups.py`); the edges of the span, and what is newer than the mark of the
sums, come from the records by their index. So a report costs what the sums in its span cost, and two parts of an hour.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from sqlalchemy import TextClause, text

SUMS = ("invocations", "prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "cost")


class Dimension(StrEnum):
    """By what usage is broken down and filtered (docs/specification/credits.md#usage)."""

    MODEL = "model"
    PRINCIPAL = "principal"
    DEPLOYMENT = "deployment"
    USER = "user"
    IDENTITY = "identity"
    KEY = "key"
    DISTRIBUTION = "distribution"

    @property
    def expression(self) -> str:
        """Its value, over records and hourly sums alike."""
        return _EXPRESSIONS.get(self, f"{self.value}_id")

    @property
    def condition(self) -> str:
        """Hold for calls with the value of the parameter that is named as the dimension is."""
        sql_type = "text" if self is Dimension.MODEL else "uuid"
        return f"{self.expression} = CAST(:{self.value} AS {sql_type})"


_EXPRESSIONS = {
    Dimension.MODEL: "model",
    # The receiving identity, else the daemon that the call ran as, else the user.
    Dimension.PRINCIPAL: "coalesce(principal_id, identity_id, user_id)",
    Dimension.KEY: "api_key_id",
}


class Interval(StrEnum):
    """The steps of a series, which begin on the hour or at midnight, UTC."""

    HOUR = "hour"
    DAY = "day"


# `whole_from` to `whole_to` are hours whose sums count. The hour of the mark has the sums of what precedes the mark.
_SPAN = """
SELECT starts_at, ends_at, whole_from, whole_to, least(whole_from, ends_at) AS head_to,
    greatest(whole_from, whole_to) AS tail_from
FROM (
    SELECT starts_at, ends_at,
        date_trunc('hour', starts_at - interval '1 microsecond', 'UTC') + interval '1 hour' AS whole_from,
        CASE WHEN ends_at < rolled_up_to THEN date_trunc('hour', ends_at, 'UTC') ELSE rolled_up_to END AS whole_to
    FROM usage_rollup, (
        SELECT coalesce(CAST(:from AS timestamptz), now() - CAST(:length AS interval)) AS starts_at,
            coalesce(CAST(:to AS timestamptz), now()) AS ends_at
    ) AS asked
) AS bounds
"""


@lru_cache(maxsize=256)
def statement(
    group_by: tuple[Dimension, ...],
    filters: frozenset[Dimension] = frozenset(),
    interval: Interval | None = None,
    *,
    of_all: bool = False,
    of_one_user: bool = False,
) -> TextClause:
    """Give the statement for these dimensions: the total first, then the groups in order of time and cost.

    Its parameters are `from`, `to` or `length`, `limit`, the filters by their names, `organization_id` unless it is
    about all of them, and `own` where it is about one user.
    """
    conditions = [dimension.condition for dimension in Dimension if dimension in filters]
    if not of_all:
        conditions.append("organization_id = CAST(:organization_id AS uuid)")
    if of_one_user:
        conditions.append("user_id = CAST(:own AS uuid)")
    cut = _Cut(
        keys=[dimension.expression for dimension in group_by], interval=interval, conditions=conditions
    )
    parts = [
        cut.sum_up("usage_hours", "hour", "sum(invocations)", bounds=("whole_from", "whole_to")),
        cut.sum_up("usage_records", "occurred_at", "count(*)", bounds=("starts_at", "head_to")),
        cut.sum_up("usage_records", "occurred_at", "count(*)", bounds=("tail_from", "ends_at")),
    ]
    return text(_whole(parts, [f"key_{place}" for place in range(len(group_by))], interval))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """How rows are grouped, and which count."""

    keys: Sequence[str]
    interval: Interval | None
    conditions: Sequence[str]

    def sum_up(self, table: str, moment: str, count: str, *, bounds: tuple[str, str]) -> str:
        """Sum a table's rows between two moments of the span."""
        step = (
            f"date_trunc('{self.interval}', {moment}, 'UTC')"
            if self.interval
            else "CAST(NULL AS timestamptz)"
        )
        named = [f"{key} AS key_{place}" for place, key in enumerate(self.keys)]
        sums = [f"{count} AS invocations", *(f"sum({name}) AS {name}" for name in SUMS[1:])]
        first, end = bounds
        within = f"{moment} >= (SELECT {first} FROM span) AND {moment} < (SELECT {end} FROM span)"  # noqa: S608
        return (
            f"SELECT {', '.join([f'{step} AS step', *named, *sums])} FROM {table}"  # noqa: S608 (this module's names only)
            f" WHERE {' AND '.join([*self.conditions, within])}"
            f" GROUP BY {', '.join(str(place) for place in range(1, len(self.keys) + 2))}"
        )


def _whole(parts: Sequence[str], keys: Sequence[str], interval: Interval | None) -> str:
    """Add the parts up by group, and all groups to the total."""
    groups = ", ".join(["step", *keys])
    order = ["is_total DESC", *(["step"] if interval else []), "cost DESC", "invocations DESC", *keys]
    return f"""
WITH span AS MATERIALIZED ({_SPAN}), used AS ({" UNION ALL ".join(parts)})
SELECT {groups}, grouping(step) = 1 AS is_total, (SELECT starts_at FROM span), (SELECT ends_at FROM span),
    {", ".join(f"coalesce(sum({name}), 0) AS {name}" for name in SUMS)}
FROM used GROUP BY GROUPING SETS (({groups}), ())
ORDER BY {", ".join(order)} LIMIT CAST(:limit AS bigint)
"""  # noqa: S608 (this module's names only)
