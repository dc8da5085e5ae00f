"""Remember since when a price of storage holds, so that days which are made up for have their own.

The price is a setting and has no date: the meter writes down what it finds, at the moment up to which it measures. A
day has the price that held when it ended. What no day to come can need goes.
"""

from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import text

from shared.db.database import Session


class StorageMonth(StrEnum):
    """For how many days the price of a GiB is (docs/specification/credits.md#storage)."""

    THIRTY_DAYS = "30-days"
    CALENDAR = "calendar"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoragePrice:
    """What a GiB costs for a month, in µcr."""

    amount: int
    month: StorageMonth = StorageMonth.THIRTY_DAYS


def record_price(session: Session, price: StoragePrice, values: dict[str, object]) -> None:
    """Write down a price that was not the newest; `values` has `settled_at`, and `starts_at` of what is measured."""
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
"""Gives the price of a day that is over, and the days that it is for: before the first that is known, that one."""

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
