"""Answer what an organization stores, and what that cost day by day."""

from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from sqlalchemy import text

from shared.credits.reports import Window
from shared.database import Session
from shared.identity.authorization import Actor, authorize_administration
from shared.identity.existence import require_organization
from shared.identity.permissions import Permission

MICROSECONDS_OF_DAY = 24 * 3600 * 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageDay:
    """One UTC day: byte-microseconds so far, bytes at its end or at the last measurement.

    `price` (µcr for a GiB and 30 days) is None until the day is over, `cost` (µcr) until it is charged.
    """

    day: date
    stored_bytes: int
    byte_microseconds: int
    price: int | None
    cost: int | None

    @property
    def byte_days(self) -> int:
        """How many bytes were stored on average, were it a whole day; rounded down."""
        return self.byte_microseconds // MICROSECONDS_OF_DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageReport:
    """The days of a window, newest first; days in which nothing was stored are left out.

    `stored_bytes` is what was stored at `measured_to`, some minutes ago; None where nothing was ever measured.
    """

    window: Window
    stored_bytes: int
    measured_to: datetime | None
    byte_microseconds: int
    cost: int
    days: tuple[StorageDay, ...]

    @property
    def byte_days(self) -> int:
        """Bytes times days, rounded down once."""
        return self.byte_microseconds // MICROSECONDS_OF_DAY


def storage_usage(session: Session, organization_id: UUID, *, window: Window) -> StorageReport:
    """Report what an organization stored on the days of a window, today's so far among them."""
    rows = session.execute(_REPORT, {"organization_id": str(organization_id), "length": window.length}).all()
    days = tuple(
        StorageDay(
            day=row.day,
            stored_bytes=row.stored_bytes,
            byte_microseconds=int(row.byte_microseconds),
            price=row.price,
            cost=row.cost,
        )
        for row in rows
        if row.day is not None
    )
    return StorageReport(
        window=window,
        stored_bytes=next((at.stored_bytes for at in days if at.price is None), 0),
        measured_to=rows[0].measured_to if rows else None,
        byte_microseconds=sum(at.byte_microseconds for at in days),
        cost=sum(at.cost or 0 for at in days),
        days=days,
    )


def read_storage_usage(
    session: Session, *, by: Actor, organization_id: UUID, window: Window
) -> StorageReport:
    """Report it to one who administers the organization."""
    authorize_administration(by, Permission.USAGE_READ, organization_id)
    require_organization(session, organization_id)
    return storage_usage(session, organization_id, window=window)


# Today's row counts what is stored until midnight: the time yet to come is taken off.
_REPORT = text(
    """
SELECT m.measured_to, d.day, d.stored_bytes, d.price, d.cost,
    d.byte_microseconds - CASE WHEN d.price IS NULL
        THEN d.stored_bytes * (extract(epoch FROM
            ((d.day + 1)::timestamp AT TIME ZONE 'UTC') - m.measured_to) * 1000000)
        ELSE 0 END AS byte_microseconds
FROM storage_mark m LEFT JOIN storage_days d ON d.organization_id = CAST(:organization_id AS uuid)
    AND d.day >= ((now() - CAST(:length AS interval)) AT TIME ZONE 'UTC')::date
ORDER BY d.day DESC
"""
)
