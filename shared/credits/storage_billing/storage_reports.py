"""Report an organization's storage and its cost, by day and by purpose, owner and distribution.

A part of a day is the storage of one combination of purpose, owner and distribution. The cost of a day is divided
among its parts in proportion to their bytes times duration, exact to the µcr. So the groups of any dimensions add
up to the ledger's charges.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any
from uuid import UUID

from sqlalchemy import TextClause, text

from shared.credits.authorization import authorize_administrative_reading
from shared.credits.statements import next_month
from shared.credits.usage.usage_reports import MAX_GROUPS, Window
from shared.db.database import Session
from shared.errors import invalid_field
from shared.identity.access.authorization import Actor
from shared.identity.access.permissions import Permission

MICROSECONDS_OF_DAY = 24 * 3600 * 1_000_000


# docs/specification/credits.md#storage
class StorageDimension(StrEnum):
    """A dimension by which storage is grouped."""

    PURPOSE = "purpose"
    OWNER = "owner"
    DISTRIBUTION = "distribution"

    @property
    def column(self) -> str:
        """The dimension's column of `storage_parts`."""
        return self.value if self is StorageDimension.PURPOSE else f"{self.value}_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageCriteria:
    """The span and grouping of a report. The span is a window that ends now (default: 30 days), or a month in UTC."""

    window: Window | None = None
    month: date | None = None
    group_by: tuple[StorageDimension, ...] = ()

    def values(self) -> dict[str, object]:
        """Return the span as parameters of the statements. Raises ValidationFailed if window and month are given."""
        if self.month is None:
            return {"length": (self.window or Window.MONTH).length, "first": None, "beyond": None}
        if self.window is not None:
            message = "goes without a month"
            raise invalid_field("window", message, location="query")
        return {"length": None, "first": self.month, "beyond": next_month(self.month)}


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageDay:
    """The storage of one UTC day: the byte-microseconds so far, and the bytes at its end or at the last measurement.

    `price` (in µcr for a GiB and `price_days`) is None until the day is over. `cost` (in µcr) is None until the day
    is charged.
    """

    day: date
    stored_bytes: int
    byte_microseconds: int
    price: int | None
    price_days: int
    cost: int | None

    @property
    def byte_days(self) -> int:
        """The average number of bytes over a whole day, rounded down."""
        return self.byte_microseconds // MICROSECONDS_OF_DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageGroup:
    """The storage of one combination of values in the span. A key is None for content that lacks this value.

    Days that were measured before days had parts have None for all keys.
    """

    keys: Mapping[StorageDimension, str | None]
    stored_bytes: int
    byte_microseconds: int
    cost: int

    @property
    def byte_days(self) -> int:
        """The bytes times the days for which they were stored, rounded down."""
        return self.byte_microseconds // MICROSECONDS_OF_DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageReport:
    """The days of a span, newest first, without days in which nothing was stored.

    `stored_bytes` is the storage at `measured_to`, the time of the last measurement some minutes ago. `measured_to`
    is None before the first measurement. `groups` has at most MAX_GROUPS of the requested groups, by descending
    cost. `is_truncated` is true if the span has more groups.
    """

    criteria: StorageCriteria
    stored_bytes: int
    measured_to: datetime | None
    byte_microseconds: int
    cost: int
    days: tuple[StorageDay, ...]
    groups: tuple[StorageGroup, ...]
    is_truncated: bool

    @property
    def window(self) -> Window | None:
        """The window of the report, or None if it is about a month."""
        return None if self.criteria.month else self.criteria.window or Window.MONTH

    @property
    def month(self) -> date | None:
        """The first day of the month of the report, or None if it is about a window."""
        return self.criteria.month

    @property
    def group_by(self) -> str:
        """The names of the dimensions, separated by commas."""
        return ",".join(self.criteria.group_by)

    @property
    def byte_days(self) -> int:
        """The bytes times the days for which they were stored, rounded down once for the whole report."""
        return self.byte_microseconds // MICROSECONDS_OF_DAY


def storage_usage(session: Session, organization_id: UUID, criteria: StorageCriteria) -> StorageReport:
    """Return an organization's storage in a span, including the current day up to now. Raises ValidationFailed."""
    values = {"organization_id": str(organization_id), **criteria.values()}
    rows = session.execute(_REPORT, values).all()
    days = tuple(
        StorageDay(
            day=row.day,
            stored_bytes=row.stored_bytes,
            byte_microseconds=int(row.byte_microseconds),
            price=row.price,
            price_days=row.price_days,
            cost=row.cost,
        )
        for row in rows
        if row.day is not None
    )
    groups = _groups(session, criteria, values) if criteria.group_by else ()
    return StorageReport(
        criteria=criteria,
        stored_bytes=rows[0].present_bytes if rows else 0,
        measured_to=rows[0].measured_to if rows else None,
        byte_microseconds=sum(at.byte_microseconds for at in days),
        cost=sum(at.cost or 0 for at in days),
        days=days,
        groups=tuple(groups[:MAX_GROUPS]),
        is_truncated=len(groups) > MAX_GROUPS,
    )


def read_storage_usage(
    session: Session, *, actor: Actor, organization_id: UUID, criteria: StorageCriteria
) -> StorageReport:
    """Return the result of `storage_usage` to an administrator.

    Raises PermissionDenied, ResourceNotFound, ValidationFailed.
    """
    authorize_administrative_reading(session, actor, Permission.USAGE_READ, organization_id)
    return storage_usage(session, organization_id, criteria)


def _groups(session: Session, criteria: StorageCriteria, values: dict[str, Any]) -> Sequence[StorageGroup]:
    rows = session.execute(_statement(criteria.group_by), {**values, "limit": MAX_GROUPS + 1})
    return [
        StorageGroup(
            keys={
                at: None if key is None else str(key) for at, key in zip(criteria.group_by, row, strict=False)
            },
            stored_bytes=int(row.stored_bytes),
            byte_microseconds=int(row.byte_microseconds),
            cost=int(row.cost),
        )
        for row in rows
    ]


_IN_SPAN = """
day >= coalesce(CAST(:first AS date), ((now() - CAST(:length AS interval)) AT TIME ZONE 'UTC')::date)
    AND day < coalesce(CAST(:beyond AS date), 'infinity')
"""
# The current day's row already contains the byte-microseconds until midnight, so subtract those of the time still
# to come.
_SO_FAR = """
byte_microseconds - CASE WHEN price IS NULL
    THEN stored_bytes * (extract(epoch FROM ((day + 1)::timestamp AT TIME ZONE 'UTC') - measured_to) * 1000000)
    ELSE 0 END AS byte_microseconds
"""
_REPORT = text(
    f"""
WITH of_organization AS (SELECT * FROM storage_days WHERE organization_id = CAST(:organization_id AS uuid))
SELECT measured_to, day, stored_bytes, price, price_days, cost, {_SO_FAR},
    coalesce((SELECT sum(stored_bytes) FROM of_organization WHERE price IS NULL), 0)::bigint AS present_bytes
FROM storage_mark LEFT JOIN of_organization ON {_IN_SPAN}
ORDER BY day DESC
"""  # noqa: S608 (this module's own text)
)
_PARTS = "purpose, owner_id, distribution_id"


@lru_cache
def _statement(group_by: tuple[StorageDimension, ...]) -> TextClause:
    """Return the statement that selects the groups.

    Storage of a day that is in none of its parts counts as a part without values.
    """
    # `divided` orders the parts of a day and assigns each part the difference of two rounded running sums. So the
    # rounding errors cancel, and the costs of the parts add up to the day's cost.
    columns = ", ".join(dimension.column for dimension in group_by)
    return text(
        f"""
WITH days AS (
    SELECT * FROM storage_days WHERE organization_id = CAST(:organization_id AS uuid) AND {_IN_SPAN}
), known AS (
    SELECT day, {_PARTS}, p.stored_bytes, p.byte_microseconds
    FROM storage_parts p JOIN days USING (organization_id, day)
), parts AS (
    SELECT day, {_PARTS}, sum(stored_bytes) AS stored_bytes, sum(byte_microseconds) AS byte_microseconds
    FROM (
        SELECT * FROM known
        UNION ALL SELECT day, NULL, NULL, NULL, stored_bytes, byte_microseconds FROM days
        UNION ALL SELECT day, NULL, NULL, NULL, -stored_bytes, -byte_microseconds FROM known
    ) AS all_parts
    GROUP BY day, {_PARTS} HAVING sum(stored_bytes) <> 0 OR sum(byte_microseconds) <> 0
), placed AS (
    SELECT day, {_PARTS}, parts.stored_bytes, parts.byte_microseconds, price, coalesce(cost, 0) AS cost,
        greatest(parts.byte_microseconds, 0) AS own, sum(greatest(parts.byte_microseconds, 0)) OVER (
            PARTITION BY day ORDER BY {_PARTS} ROWS UNBOUNDED PRECEDING
        ) AS running, nullif(sum(greatest(parts.byte_microseconds, 0)) OVER (PARTITION BY day), 0) AS whole
    FROM parts JOIN days USING (day)
), divided AS (
    SELECT {_PARTS}, CASE WHEN price IS NULL THEN stored_bytes ELSE 0 END AS stored_bytes, {_SO_FAR},
        coalesce(div(cost * running, whole) - div(cost * (running - own), whole), 0) AS cost
    FROM placed, storage_mark
)
SELECT {columns}, sum(stored_bytes) AS stored_bytes, sum(byte_microseconds) AS byte_microseconds, sum(cost) AS cost
FROM divided GROUP BY {columns}
ORDER BY cost DESC, byte_microseconds DESC, {columns} LIMIT :limit
"""  # noqa: S608 (this module's names only)
    )
