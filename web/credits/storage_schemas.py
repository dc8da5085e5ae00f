"""The JSON of what is stored and what it costs: snake_case below `/v1`, camelCase below `/admin`."""

from collections.abc import Sequence
from datetime import date
from typing import Annotated, Literal, Self

from pydantic import Field

from shared.credits.reports import Window
from shared.credits.storage_reports import StorageDay, StorageReport
from web.credits.amount_types import Credits
from web.http.schemas import Shown
from web.http.wire_types import Sent, SnakeSent, SnakeWire, UtcTime

WindowBack = Annotated[
    Literal["24h", "7d", "30d"], Field(description="How far back; the first UTC day is reported as a whole.")
]
_STORED = Field(description="Bytes stored at `measured_to`, some minutes ago; earlier versions included.")
_BYTE_DAYS = Field(description="Bytes times days, rounded down.")
_PRICE = Field(description="For a GiB stored for 30 days; null until the day is over.")
_COST = Field(description="Null until the day is charged, soon after it is over.")


class StorageQuery(SnakeSent):
    """The parameters of a report on storage."""

    window: WindowBack = "30d"


class StorageDayBody(SnakeWire):
    """One UTC day; `stored_bytes` is what was stored at its end."""

    object: Literal["usage.storage.day"] = "usage.storage.day"
    day: date
    stored_bytes: int
    byte_days: int = _BYTE_DAYS
    price: Credits | None = _PRICE
    cost: Credits | None = _COST

    @classmethod
    def of(cls, day: StorageDay) -> Self:
        """Show a day."""
        return cls(
            day=day.day,
            stored_bytes=day.stored_bytes,
            byte_days=day.byte_days,
            price=day.price,
            cost=day.cost,
        )


class StorageSumBody(SnakeWire):
    """What was stored in the window, and what has been charged for it."""

    byte_days: int = _BYTE_DAYS
    cost: Credits


class StorageUsageBody(SnakeWire):
    """What the organization stores, and what that cost, the newest day first; days without content are left out."""

    object: Literal["usage.storage"] = "usage.storage"
    window: Window
    stored_bytes: int = _STORED
    measured_to: UtcTime | None
    total: StorageSumBody
    data: Sequence[StorageDayBody]

    @classmethod
    def of(cls, report: StorageReport) -> Self:
        """Show a report."""
        return cls(
            window=report.window,
            stored_bytes=report.stored_bytes,
            measured_to=report.measured_to,
            total=StorageSumBody(byte_days=report.byte_days, cost=report.cost),
            data=[StorageDayBody.of(day) for day in report.days],
        )


class OrganizationStorageQuery(Sent):
    """The parameters of the same report for those who administer the organization."""

    window: WindowBack = "30d"


class OrganizationStorageDay(Shown):
    """One UTC day; `storedBytes` is what was stored at its end."""

    day: date
    stored_bytes: int
    byte_days: int = _BYTE_DAYS
    price: Credits | None = _PRICE
    cost: Credits | None = _COST


class OrganizationStorage(Shown):
    """What an organization stores, and what that cost, for those who administer it."""

    window: Window
    stored_bytes: int = Field(description="Bytes stored at `measuredTo`, some minutes ago.")
    measured_to: UtcTime | None
    byte_days: int = _BYTE_DAYS
    cost: Credits
    days: Sequence[OrganizationStorageDay]
