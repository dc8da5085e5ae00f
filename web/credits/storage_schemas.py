"""The JSON of what is stored and what it costs: snake_case below `/v1`, camelCase below `/admin`."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Annotated, Literal, Self

from pydantic import Field

from shared.credits.storage_billing.storage_reports import (
    StorageCriteria,
    StorageDay,
    StorageDimension,
    StorageGroup,
    StorageReport,
)
from shared.credits.usage.usage_reports import MAX_GROUPS, Window
from web.credits.amount_types import Credits
from web.credits.statements import Month
from web.credits.usage_schemas import several
from web.http.schemas import ResponseModel
from web.http.wire_types import RequestModel, SnakeModel, SnakeRequestModel, UtcTime

WindowBack = Annotated[
    Literal["24h", "7d", "30d"] | None,
    Field(
        description="How far back: 30d, unless `month` is given; the first UTC day is reported as a whole."
    ),
]
OfMonth = Annotated[
    Month | None, Field(description="The days of a calendar month (UTC), instead of a window.")
]
Dimensions = Annotated[
    tuple[StorageDimension, ...],
    *several(StorageDimension, "purpose,owner"),
    Field(description="By what the sums are broken down; by default they are not."),
]
_STORED = Field(description="Bytes stored at `measured_to`, some minutes ago; earlier versions included.")
_BYTE_DAYS = Field(description="Bytes times days, rounded down.")
_PRICE = Field(
    description="For a GiB stored for the days that are said beside it; null until the day is over."
)
_PRICE_DAYS = Field(
    description="For how many days the price of a GiB is: 30, or the days of the calendar month."
)
_KEYS = Field(
    description="The value of each dimension; null for content without one, and for what was stored before "
    "storage was measured by them."
)
_GROUPS = Field(
    description="The dearest first; their costs come to the total's, to the millionth of a credit."
)
_CUT_OFF = Field(description=f"Whether there are more than {MAX_GROUPS} groups.")
_COST = Field(description="Null until the day is charged, soon after it is over.")


class _StorageQuery:
    """The parameters of a report on storage, which are spelled alike in both forms of the wire but for their case."""

    window: WindowBack = None
    month: OfMonth = None
    group_by: Dimensions = ()

    @property
    def criteria(self) -> StorageCriteria:
        """Say it to the domain."""
        window = Window(self.window) if self.window else None
        return StorageCriteria(window=window, month=self.month, group_by=self.group_by)


class _Day:
    """The fields of a UTC day, likewise; `stored_bytes` is what was stored at its end."""

    day: date
    stored_bytes: int
    byte_days: int = _BYTE_DAYS
    price: Credits | None = _PRICE
    price_days: int = _PRICE_DAYS
    cost: Credits | None = _COST


class StorageQuery(_StorageQuery, SnakeRequestModel):
    """The parameters of a report on storage."""


class StorageDayBody(_Day, SnakeModel):
    """One UTC day; `stored_bytes` is what was stored at its end."""

    object: Literal["usage.storage.day"] = "usage.storage.day"

    @classmethod
    def of(cls, day: StorageDay) -> Self:
        """Show a day."""
        return cls.model_validate(day, from_attributes=True)


class StorageSumBody(SnakeModel):
    """What was stored in the window, and what has been charged for it."""

    byte_days: int = _BYTE_DAYS
    cost: Credits


class StorageGroupBody(StorageSumBody):
    """What was stored of one purpose, owner and so on."""

    keys: Mapping[StorageDimension, str | None] = _KEYS
    stored_bytes: int = _STORED

    @classmethod
    def of(cls, group: StorageGroup) -> Self:
        """Show a group."""
        return cls(
            keys=group.keys, stored_bytes=group.stored_bytes, byte_days=group.byte_days, cost=group.cost
        )


class StorageUsageBody(SnakeModel):
    """What the organization stores, and what that cost, the newest day first; days without content are left out."""

    object: Literal["usage.storage"] = "usage.storage"
    window: Window | None
    month: Month | None
    group_by: str = Field(description="The dimensions, with commas between them.")
    stored_bytes: int = _STORED
    measured_to: UtcTime | None
    total: StorageSumBody
    data: Sequence[StorageDayBody]
    groups: Sequence[StorageGroupBody] = _GROUPS
    is_truncated: bool = _CUT_OFF

    @classmethod
    def of(cls, report: StorageReport) -> Self:
        """Show a report."""
        return cls(
            window=report.window,
            month=report.month,
            group_by=report.group_by,
            stored_bytes=report.stored_bytes,
            measured_to=report.measured_to,
            total=StorageSumBody(byte_days=report.byte_days, cost=report.cost),
            data=[StorageDayBody.of(day) for day in report.days],
            groups=[StorageGroupBody.of(group) for group in report.groups],
            is_truncated=report.is_truncated,
        )


class OrganizationStorageQuery(_StorageQuery, RequestModel):
    """The parameters of the same report for those who administer the organization."""


class OrganizationStorageDay(_Day, ResponseModel):
    """One UTC day; `storedBytes` is what was stored at its end."""


class OrganizationStorageGroup(ResponseModel):
    """What was stored of one purpose, owner and so on."""

    keys: Mapping[StorageDimension, str | None] = _KEYS
    stored_bytes: int
    byte_days: int = _BYTE_DAYS
    cost: Credits


class OrganizationStorage(ResponseModel):
    """What an organization stores, and what that cost, for those who administer it."""

    window: Window | None
    month: Month | None
    group_by: str = Field(description="The dimensions, with commas between them.")
    stored_bytes: int = Field(description="Bytes stored at `measuredTo`, some minutes ago.")
    measured_to: UtcTime | None
    byte_days: int = _BYTE_DAYS
    cost: Credits
    days: Sequence[OrganizationStorageDay]
    groups: Sequence[OrganizationStorageGroup] = _GROUPS
    is_truncated: bool = _CUT_OFF
