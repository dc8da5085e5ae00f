"""Write figures and moments for people. Pure: the present is given."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from shared.credits.amounts import MICRO

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEPS = ((1_000_000_000, "B"), (1_000_000, "M"), (10_000, "k"))
_MINUS = "\N{MINUS SIGN}"
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_JUST_NOW, _DAYS_TOLD = 45, 45


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """An amount of credits: what is read at a glance, and the four digits that make it exact."""

    whole: str
    rest: str


def money(amount: int) -> Money:
    """Split µcr into credits with two digits, and the other four."""
    whole, fraction = divmod(abs(amount), MICRO)
    digits = f"{fraction:06}"
    sign = _MINUS if amount < 0 else ""
    return Money(whole=f"{sign}{whole:,}.{digits[:2]}", rest=digits[2:])


def credits(amount: int) -> str:  # noqa: A001 (the word of the domain)
    """Write µcr as credits with two digits, rounded half up."""
    cents = (abs(amount) + MICRO // 200) // (MICRO // 100)
    sign = _MINUS if amount < 0 and cents else ""
    return f"{sign}{cents // 100:,}.{cents % 100:02}"


def number(count: int) -> str:
    """Write a count with its thousands apart."""
    return f"{count:,}"


def short(count: int) -> str:
    """Write a large count to three digits: 574 M."""
    for step, unit in _STEPS:
        if count >= step:
            value = count / (1000 if unit == "k" else step)
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"  # noqa: PLR2004 (three digits)
    return f"{count:,}"


def size(count: int) -> str:
    """Write a number of bytes."""
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:  # noqa: PLR2004 (KiB)
        value, unit = value / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{value:,.1f} {_UNITS[unit]}"


def percent(part: int, whole: int) -> str:
    """Write a share."""
    return f"{100 * part / whole:.1f} %" if whole else "0 %"


def relative(moment: datetime, now: datetime) -> str:
    """Say how far a moment is from now; a date when that is long."""
    seconds = (moment - now).total_seconds()
    distance = abs(seconds)
    if distance < _JUST_NOW:
        return "now"
    if distance >= _DAYS_TOLD * _DAY:
        return day(moment)
    told = _span(distance)
    if seconds > 0:
        return f"in {told}"
    return "yesterday" if told == "1 day" else f"{told} ago"


def absolute(moment: datetime, now: datetime) -> str:
    """Write a moment in UTC, with its year unless it is this one."""
    at = moment.astimezone(UTC)
    year = "" if at.year == now.year else f" {at.year}"
    return f"{at.day} {at:%b}{year}, {at:%H:%M}"


def day(moment: datetime) -> str:
    """Write a day in UTC."""
    at = moment.astimezone(UTC)
    return f"{at.day} {at:%b} {at.year}"


def _span(seconds: float) -> str:
    if seconds < _HOUR:
        return f"{max(1, round(seconds / _MINUTE))} min"
    if seconds < _DAY:
        return f"{round(seconds / _HOUR)} h"
    days = timedelta(seconds=seconds).days
    return "1 day" if days == 1 else f"{days} days"
