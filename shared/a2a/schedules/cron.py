"""Cron expressions with time zones: five fields, names of days and months, `L` and `#` (cronsim).

Clock changes are handled as in Debian's cron. If the clock skips a fixed time (`30 2 * * *`), it runs immediately after
the jump. If the clock skips a recurring time within an hour (`*/20 2 * * *`), it does not run on that day. If the clock
repeats an hour, a fixed time runs only the first time, and a recurring time runs in both hours.
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
    """The expression or the time zone is invalid, or the expression has no tick. The message has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """An expression in a time zone; ticks are in UTC, whole minutes."""

    expression: str
    time_zone: str

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first tick after a moment, or None if there is none."""
        try:
            return next(CronSim(self.expression, self._local(moment))).astimezone(UTC)
        except StopIteration:
            return None

    def is_tick(self, moment: datetime) -> bool:
        """Return whether a moment is a tick."""
        return self.next_after(moment - timedelta(minutes=1)) == moment

    def last_until(self, moment: datetime, *, since: datetime, limit: int) -> Sequence[datetime]:
        """Return the last ticks from `since` to `moment`, both included: at most `limit` ticks, the latest first."""
        # The simulation does not return the time at which it starts, so start one minute later.
        just_after = moment.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        backwards = CronSim(self.expression, self._local(just_after), reverse=True)
        ticks = (tick.astimezone(UTC) for tick in backwards)
        return list(islice(takewhile(lambda tick: tick >= since, ticks), limit))

    def _local(self, moment: datetime) -> datetime:
        return moment.astimezone(ZoneInfo(self.time_zone))


def parse_cron(expression: str, time_zone: str) -> Cron:
    """Return a checked expression in a time zone (`Europe/Berlin`). Raises CronInvalid."""
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
        raise CronInvalid("has no tick: no date matches it")
    return cron


@cache
def _time_zones() -> frozenset[str]:
    return frozenset(available_timezones())
