"""Request and response models of stored bytes and their cost: snake_case below `/v1`, camelCase below `/admin`."""

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
from web.credits.usage_schemas import comma_separated
from web.http.schemas import ResponseModel
from web.http.wire_types import RequestModel, SnakeModel, SnakeRequestModel, UtcTime

WindowBack = Annotated[
    Literal["24h", "7d", "30d"] | None,
    Field(
        description="The time back from now: 30d, unless `month` is given. The first UTC day is reported completely."
    ),
]
OfMonth = Annotated[
    Month | None, Field(description="The days of a calendar month (UTC), instead of a window.")
]
Dimensions = Annotated[
    tuple[StorageDimension, ...],
    *comma_separated(StorageDimension, "purpose,owner"),
    Field(description="Dimensions of the breakdown. Default: none."),
]
_STORED = Field(description="Bytes stored at `measured_to`, some minutes ago, including earlier versions.")
_BYTE_DAYS = Field(description="Bytes times days, rounded down.")
_PRICE = Field(description="For a GiB stored for `price_days` days. Null until the day is over.")
_PRICE_DAYS = Field(
    description="The number of days that the price covers: 30, or the days of the calendar month."
)
_KEYS = Field(
    description="The value of each dimension. Null for content without one, and for bytes stored before "
    "dimensions were measured."
)
_GROUPS = Field(
    description="The highest cost first. Their costs add up to the total, to the millionth of a credit."
)
_CUT_OFF = Field(description=f"Whether there are more than {MAX_GROUPS} groups.")
_COST = Field(description="Null until the day is charged, shortly after it is over.")


# This is a plain class: each subclass adds the model that decides the case of the names.
class _StorageQuery:
    """The parameters of a storage report. Their names differ only in case between `/v1` and `/admin`."""

    window: WindowBack = None
    month: OfMonth = None
    group_by: Dimensions = ()

    @property
    def criteria(self) -> StorageCriteria:
        """Return the domain's criteria."""
        # Pass both values: the domain applies the default, and refuses a window together with a month.
        window = Window(self.window) if self.window else None
        return StorageCriteria(window=window, month=self.month, group_by=self.group_by)


class _Day:
    """The fields of a UTC day, shared by both formats.

    `stored_bytes` is the number of bytes at the end of the day.
    """

    day: date
    stored_bytes: int
    byte_days: int = _BYTE_DAYS
    price: Credits | None = _PRICE
    price_days: int = _PRICE_DAYS
    cost: Credits | None = _COST


class StorageQuery(_StorageQuery, SnakeRequestModel):
    """The parameters of a storage report."""


class StorageDayBody(_Day, SnakeModel):
    """One UTC day; `stored_bytes` is the amount at its end."""

    object: Literal["usage.storage.day"] = "usage.storage.day"

    @classmethod
    def of(cls, day: StorageDay) -> Self:
        """Return the model of a day."""
        return cls.model_validate(day, from_attributes=True)


class StorageSumBody(SnakeModel):
    """The bytes stored in the window, and the amount charged for them."""

    byte_days: int = _BYTE_DAYS
    cost: Credits


class StorageGroupBody(StorageSumBody):
    """The bytes stored for one value of each dimension."""

    keys: Mapping[StorageDimension, str | None] = _KEYS
    stored_bytes: int = _STORED

    @classmethod
    def of(cls, group: StorageGroup) -> Self:
        """Return the model of a group."""
        return cls(
            keys=group.keys, stored_bytes=group.stored_bytes, byte_days=group.byte_days, cost=group.cost
        )


class StorageUsageBody(SnakeModel):
    """The organization's stored bytes and their cost, the newest day first. Days without content are left out."""

    object: Literal["usage.storage"] = "usage.storage"
    window: Window | None
    month: Month | None
    group_by: str = Field(description="The dimensions, separated by commas.")
    stored_bytes: int = _STORED
    measured_to: UtcTime | None
    total: StorageSumBody
    data: Sequence[StorageDayBody]
    groups: Sequence[StorageGroupBody] = _GROUPS
    is_truncated: bool = _CUT_OFF

    @classmethod
    def of(cls, report: StorageReport) -> Self:
        """Return the model of a report."""
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
    """The parameters of the storage report for an organization's administrators."""


class OrganizationStorageDay(_Day, ResponseModel):
    """One UTC day; `storedBytes` is the amount at its end."""


class OrganizationStorageGroup(ResponseModel):
    """The bytes stored for one value of each dimension."""

    keys: Mapping[StorageDimension, str | None] = _KEYS
    stored_bytes: int
    byte_days: int = _BYTE_DAYS
    cost: Credits


class OrganizationStorage(ResponseModel):
    """An organization's stored bytes and their cost, for its administrators."""

    window: Window | None
    month: Month | None
    group_by: str = Field(description="The dimensions, separated by commas.")
    stored_bytes: int = Field(description="Bytes stored at `measuredTo`, some minutes ago.")
    measured_to: UtcTime | None
    byte_days: int = _BYTE_DAYS
    cost: Credits
    days: Sequence[OrganizationStorageDay]
    groups: Sequence[OrganizationStorageGroup] = _GROUPS
    is_truncated: bool = _CUT_OFF
