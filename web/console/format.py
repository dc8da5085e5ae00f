"""Format numbers and times for people.

All functions are pure: the current time is a parameter.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from shared.credits.amounts import MICRO

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
# Counts below 10,000 have no unit: they are short enough to show exactly.
_COUNT_UNITS = ((1_000_000_000, "B"), (1_000_000, "M"), (10_000, "k"))
_MINUS = "\N{MINUS SIGN}"
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_NOW_SECONDS, _RELATIVE_DAYS = 45, 45


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """An amount of credits: the text with two decimal places, and the four further digits of the exact amount."""

    whole: str
    rest: str


def money(amount: int) -> Money:
    """Return an amount in µcr as credits with two decimal places and the four further digits."""
    # Format the absolute amount and add the sign: divmod() of a negative amount rounds away from zero.
    whole, fraction = divmod(abs(amount), MICRO)
    digits = f"{fraction:06}"
    sign = _MINUS if amount < 0 else ""
    return Money(whole=f"{sign}{whole:,}.{digits[:2]}", rest=digits[2:])


def credits(amount: int) -> str:  # noqa: A001 (the word of the domain)
    """Return an amount in µcr as credits with two decimal places, rounded half up."""
    # Round with integers: a float cannot hold every amount, and its formatting does not always round a half
    # up.
    cents = (abs(amount) + MICRO // 200) // (MICRO // 100)
    # Write no minus before 0.00.
    sign = _MINUS if amount < 0 and cents else ""
    return f"{sign}{cents // 100:,}.{cents % 100:02}"


def number(count: int) -> str:
    """Return a count with thousands separators."""
    return f"{count:,}"


def short(count: int) -> str:
    """Return a large count in three digits with a unit, such as 574 M."""
    for step, unit in _COUNT_UNITS:
        if count >= step:
            value = count / (1000 if unit == "k" else step)
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"  # noqa: PLR2004 (three digits)
    return f"{count:,}"


def size(count: int) -> str:
    """Return a number of bytes in binary units, such as 1.5 MiB."""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_BYTE_UNITS) - 1:  # noqa: PLR2004 (KiB)
        value, unit = value / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{value:,.1f} {_BYTE_UNITS[unit]}"


def percent(part: int, whole: int) -> str:
    """Return a share in percent. If `whole` is 0, return 0 %."""
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


def relative(moment: datetime, now: datetime) -> str:
    """Return how far a time is from now, such as `in 5 min`. From 45 days on, return its date."""
    seconds = (moment - now).total_seconds()
    distance = abs(seconds)
    if distance < _NOW_SECONDS:
        return "now"
    if distance >= _RELATIVE_DAYS * _DAY:
        return day(moment)
    span = _span(distance)
    if seconds > 0:
        return f"in {span}"
    return "yesterday" if span == "1 day" else f"{span} ago"


def absolute(moment: datetime, now: datetime) -> str:
    """Return a time in UTC. The text has the year only if it is not the current year."""
    at = moment.astimezone(UTC)
    year = "" if at.year == now.year else f" {at.year}"
    return f"{at.day} {at:%b}{year}, {at:%H:%M}"


def day(moment: datetime) -> str:
    """Return the date of a time in UTC."""
    at = moment.astimezone(UTC)
    return f"{at.day} {at:%b} {at.year}"


def _span(seconds: float) -> str:
    if seconds < _HOUR:
        return f"{max(1, round(seconds / _MINUTE))} min"
    if seconds < _DAY:
        return f"{round(seconds / _HOUR)} h"
    days = timedelta(seconds=seconds).days
    return "1 day" if days == 1 else f"{days} days"
