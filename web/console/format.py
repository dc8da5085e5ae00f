"""Format numbers and times for people. Pure functions: the current time is a parameter."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from shared.credits.amounts import MICRO

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
# Counts below 10,000 are short enough to be exact.
_COUNT_UNITS = ((1_000_000_000, "B"), (1_000_000, "M"), (10_000, "k"))
_MINUS = "\N{MINUS SIGN}"
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_NOW_SECONDS, _RELATIVE_DAYS = 45, 45


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """An amount of credits: with two decimal places, and the four further digits that make it exact."""

    whole: str
    rest: str


def money(amount: int) -> Money:
    """Return µcr as credits with two decimal places and the other four digits."""
    # The sign is added to the text: divmod() of a negative amount rounds away from zero.
    whole, fraction = divmod(abs(amount), MICRO)
    digits = f"{fraction:06}"
    sign = _MINUS if amount < 0 else ""
    return Money(whole=f"{sign}{whole:,}.{digits[:2]}", rest=digits[2:])


def credits(amount: int) -> str:  # noqa: A001 (the word of the domain)
    """Return µcr as credits with two decimal places, rounded half up."""
    # In integers: a float cannot hold every amount, and formats halves by their binary value.
    cents = (abs(amount) + MICRO // 200) // (MICRO // 100)
    # No minus before 0.00.
    sign = _MINUS if amount < 0 and cents else ""
    return f"{sign}{cents // 100:,}.{cents % 100:02}"


def number(count: int) -> str:
    """Return a count with separated thousands."""
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
    """Return a share in percent, or 0 % of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


def relative(moment: datetime, now: datetime) -> str:
    """Return the distance of a time from now, such as `in 5 min`, or its date from 45 days on."""
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
    """Return a time in UTC, with its year unless it is the current one."""
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
