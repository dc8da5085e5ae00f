"""Cron expressions with time zones: five fields, names of days and months, `L` and `#` (cronsim).

Clock changes are met as Debian's cron does. A skipped time: a fixed hour and minute (`30 2 * * *`) comes at once
after the jump; what recurs within the hour (`*/20 2 * * *`) does not come that day. A repeated hour: a fixed time
comes once, the first time; a recurring one in both hours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, takewhile
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

FIELDS = 5
MAX_CHARACTERS = 200


class CronInvalid(ValueError):
    """Not an expression, or not a time zone, that ever comes; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """An expression in a time zone; ticks are in UTC, whole minutes."""

    expression: str
    time_zone: str

    def next_after(self, moment: datetime) -> datetime | None:
        """Give the first tick after a moment; None if none ever comes."""
        try:
            return next(CronSim(self.expression, self._local(moment))).astimezone(UTC)
        except StopIteration:
            return None

    def is_tick(self, moment: datetime) -> bool:
        """Tell whether this is a tick."""
        return self.next_after(moment - timedelta(minutes=1)) == moment

    def last_until(self, moment: datetime, *, since: datetime, limit: int) -> Sequence[datetime]:
        """Give the last ticks from `since` to a moment, both included, at most so many; the latest comes first."""
        # The simulation begins before or after a minute, never on it.
        just_after = moment.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        backwards = CronSim(self.expression, self._local(just_after), reverse=True)
        ticks = (tick.astimezone(UTC) for tick in backwards)
        return list(islice(takewhile(lambda tick: tick >= since, ticks), limit))

    def _local(self, moment: datetime) -> datetime:
        return moment.astimezone(ZoneInfo(self.time_zone))


def parse_cron(expression: str, time_zone: str) -> Cron:
    """Read an expression and the name of a time zone (`Europe/Berlin`). Raises CronInvalid."""
    fields = expression.split()
    if len(fields) != FIELDS or len(expression) > MAX_CHARACTERS:
        raise CronInvalid("must have five fields: minute, hour, day of month, month, day of week")
    if time_zone not in _time_zones():
        raise CronInvalid("is not the name of a time zone, such as Europe/Berlin or UTC")
    cron = Cron(expression=" ".join(fields), time_zone=time_zone)
    try:
        is_ever = cron.next_after(datetime.now(UTC)) is not None
    except CronSimError as error:
        raise CronInvalid(f"is not a cron expression: {str(error).lower()}") from error
    if not is_ever:
        raise CronInvalid("never comes")
    return cron


@cache
def _time_zones() -> frozenset[str]:
    return frozenset(available_timezones())
