"""How many open calls an organization may have at this moment: its share of the slots of the live workers.

The rule is that of `shared/admission.py`, applied twice over all processes at once, because a call counts from its hold
to its settlement and no process sees them all. A provider may use ALPHA times what is free, so that some slots are
always left for the others; within what a provider may use, an organization may have as many open calls as there is
room, or an equal part for each organization that has any and one newcomer. A limit of somebody's choosing (a key's, an
organization's) would be one more number that the hold is given the least of.

What is known is at most a quarter of a second old, and counts what this process has begun since.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import redis

from shared import failpoints
from shared.admission import UNFAIR
from shared.credits.calls import OpenCalls, count_open_calls
from shared.database import Database
from shared.errors import DomainError
from shared.models.capacity import read_slots
from shared.telemetry import get_logger

log = get_logger(__name__)

KNOWN_SECONDS = 0.25
PROVIDER_ALPHA = 7
"""One provider alone may use seven eighths of the slots."""


@dataclass(slots=True)
class _Snapshot:
    slots: int
    open: OpenCalls
    begun: Counter[str] = field(default_factory=Counter)
    read_at: float = field(default_factory=time.monotonic)


def share_of(slots: int, open_calls: OpenCalls, provider: str) -> int:
    """Give how many open calls an organization may have that wants one of this provider; 0 where there is no room."""
    free = slots - open_calls.total
    used = open_calls.by_provider.get(provider, 0)
    providers = len(open_calls.by_provider.keys() | {provider})
    # How many more calls of the provider keep `used < PROVIDER_ALPHA * free`; each takes one from what is free.
    more = math.ceil((PROVIDER_ALPHA * free - used) / (PROVIDER_ALPHA + 1))
    room = min(free, max(more, math.ceil(slots / (providers + 1) - used)))
    if room <= 0:
        return 0
    # Rounded down: many who each round theirs up would leave nothing.
    return max(1, room, (room + used) // (max(1, open_calls.organizations) + 1))


class Shares:
    """The shares as one process knows them; safe to share between threads."""

    def __init__(self, database: Database, valkey: redis.Redis, *, slots_when_unknown: int) -> None:
        """Ask nothing yet. `slots_when_unknown` counts while no worker says how many it has."""
        self._database = database
        self._valkey = valkey
        self._slots_when_unknown = slots_when_unknown
        self._reading = threading.Lock()
        self._snapshot: _Snapshot | None = None
        self._is_fair = not failpoints.is_armed(UNFAIR)

    def of(self, provider: str) -> int | None:
        """Give how many open calls an organization may have that wants one of this provider; None for any number."""
        if not self._is_fair:
            return None
        known = self._known()
        begun = known.begun
        counted = OpenCalls(
            total=known.open.total + begun.total(),
            organizations=known.open.organizations,
            by_provider=Counter(known.open.by_provider) + begun if begun else known.open.by_provider,
        )
        return share_of(known.slots, counted, provider)

    def begin(self, provider: str) -> None:
        """Count a call that was held just now, until the next look sees it."""
        if self._snapshot is not None:
            self._snapshot.begun[provider] += 1

    def _known(self) -> _Snapshot:
        """Give what is known; the thread whose turn it is looks, and the others go on with what was known before."""
        known = self._snapshot
        if known is not None and time.monotonic() - known.read_at < KNOWN_SECONDS:
            return known
        with_first = known is None
        if not self._reading.acquire(blocking=with_first):
            return known  # type: ignore[return-value]  # only the first look is waited for
        try:
            if with_first and self._snapshot is not None:
                return self._snapshot
            self._snapshot = _Snapshot(slots=self._slots(), open=self._open_calls())
            return self._snapshot
        finally:
            self._reading.release()

    def _slots(self) -> int:
        try:
            return read_slots(self._valkey) or self._slots_when_unknown
        except redis.RedisError as error:
            log.warning("slots.not_read", error=str(error))
            return self._snapshot.slots if self._snapshot is not None else self._slots_when_unknown

    def _open_calls(self) -> OpenCalls:
        try:
            with self._database.autocommit() as session:
                return count_open_calls(session)
        except DomainError as error:
            # The hold will fail likewise, and say why.
            log.warning("open_calls.not_counted", error=error.code)
            return OpenCalls(total=0, organizations=0, by_provider={})
