"""Record when each price of storage begins to apply, so that days that are charged late have their own price.

The price is a setting without a date, so the meter records the price with the time up to which it measures. A day is
charged with the price at its end. Prices that no later day can need are deleted.
"""

from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import text

from shared.db.database import Session


class StorageMonth(StrEnum):
    """The number of days for which the price of a GiB applies (docs/specification/credits.md#storage)."""

    THIRTY_DAYS = "30-days"
    CALENDAR = "calendar"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoragePrice:
    """The price of a GiB for a month, in µcr."""

    amount: int
    month: StorageMonth = StorageMonth.THIRTY_DAYS


def record_price(session: Session, price: StoragePrice, values: dict[str, object]) -> None:
    """Insert a price if it differs from the newest; `values` has `settled_at`, and `starts_at` of the measurement."""
    session.execute(_NOTE, {**values, "price": price.amount, "month": price.month.value})
    session.execute(_FORGET, values)


PRICE_OF_DAY = """
SELECT price, CASE month WHEN 'calendar' THEN
    extract(day FROM date_trunc('month', CAST(:day AS timestamp)) + interval '1 month' - interval '1 day') ELSE 30
END AS price_days
FROM storage_prices
WHERE starts_at <= greatest(:day_ends_at, (SELECT min(starts_at) FROM storage_prices))
ORDER BY starts_at DESC LIMIT 1
"""
"""Selects the price of a day that is over, and its days; a day before the first known price has that price."""

_NOTE = text(
    """
INSERT INTO storage_prices (starts_at, price, month)
SELECT :settled_at, :price, :month
WHERE NOT EXISTS (
    SELECT FROM (SELECT price, month FROM storage_prices ORDER BY starts_at DESC LIMIT 1) AS newest
    WHERE price = :price AND month = :month
)
ON CONFLICT DO NOTHING
"""
)
_FORGET = text(
    """
DELETE FROM storage_prices
WHERE starts_at < (SELECT max(starts_at) FROM storage_prices WHERE starts_at <= :starts_at)
"""
)
