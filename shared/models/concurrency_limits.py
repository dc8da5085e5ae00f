"""How many open calls an organization may have at this moment: its share of the slots of the live workers.

Each worker announces its slots every second in Valkey, for five; a dead worker's entry expires by Valkey's clock.

The rule of `shared/fairness/admission.py` is applied twice over all processes, because a call counts from hold to
settlement. A provider may use ALPHA times what is free; within that an organization may have as many open calls as
there is room, or an equal part for each active organization and one newcomer.

Other processes' calls are known as of a quarter of a second ago; this process's own are counted exactly, or quick
calls would wait for the next look.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import redis

from shared import failpoints
from shared.credits.open_calls import OpenCalls, count_open_calls
from shared.db.database import Database
from shared.errors import DomainError
from shared.fairness.admission import UNFAIR
from shared.messaging.valkey import ask_together
from shared.observability.telemetry import get_logger
from shared.runtime.periodic_thread import PeriodicThread

log = get_logger(__name__)

SNAPSHOT_SECONDS = 0.25
PROVIDER_ALPHA = 7
"""One provider alone may use seven eighths of the slots."""
KEY = "quartermaster:model-workers"
ANNOUNCE_SECONDS = 1.0
ANNOUNCEMENT_TTL_SECONDS = 5.0
_ANNOUNCE = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
"""


@dataclass(slots=True)
class _Snapshot:
    slots: int
    others: OpenCalls
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
        self._own = _OwnCalls()
        self._attempts = _Attempts()
        self._reading = threading.Lock()
        self._snapshot: _Snapshot | None = None
        self._is_fair = not failpoints.is_armed(UNFAIR)

    @contextmanager
    def attempt(self, organization_id: UUID, provider: str) -> Iterator[int | None]:
        """Give how many open calls an organization may have that is about to begin one; None for any number.

        Its attempts count for one another: each of many at once would otherwise be given all that is free.
        """
        others = self._attempts.enter(organization_id, provider)
        try:
            yield self.of(provider, attempts=others)
        finally:
            self._attempts.leave(organization_id, provider)

    def of(self, provider: str, *, attempts: int = 0) -> int | None:
        """Give how many open calls an organization may have that has so many attempts under way."""
        if not self._is_fair:
            return None
        snapshot = self._current_snapshot()
        own = self._own.by_provider() + Counter({provider: attempts})
        open_calls = OpenCalls(
            total=snapshot.others.total + own.total(),
            organizations=snapshot.others.organizations,
            by_provider=Counter(snapshot.others.by_provider) + own if own else snapshot.others.by_provider,
        )
        return share_of(snapshot.slots, open_calls, provider)

    def begin(self, invocation_id: UUID, provider: str) -> None:
        """Count a call that was held just now."""
        self._own.add(invocation_id, provider)

    def end(self, invocation_id: UUID) -> None:
        """Count a call no more: it has ended, or is not this process's any more; the next look decides."""
        self._own.remove(invocation_id)

    def _current_snapshot(self) -> _Snapshot:
        """Give what is known; the thread whose turn it is looks, and the others go on with what was known before."""
        snapshot = self._snapshot
        if snapshot is not None and time.monotonic() - snapshot.read_at < SNAPSHOT_SECONDS:
            return snapshot
        is_first_read = snapshot is None
        if not self._reading.acquire(blocking=is_first_read):
            return snapshot  # type: ignore[return-value]  # only the first look is waited for
        try:
            if is_first_read and self._snapshot is not None:
                return self._snapshot
            self._snapshot = _Snapshot(slots=self._slots(), others=self._other_calls())
            return self._snapshot
        finally:
            self._reading.release()

    def _slots(self) -> int:
        try:
            return read_slots(self._valkey) or self._slots_when_unknown
        except redis.RedisError as error:
            log.warning("slots.not_read", error=str(error))
            return self._snapshot.slots if self._snapshot is not None else self._slots_when_unknown

    def _other_calls(self) -> OpenCalls:
        own = self._own.ids()
        try:
            with self._database.autocommit() as session:
                open_calls = count_open_calls(session, own)
        except DomainError as error:
            # The hold will fail likewise, and say why.
            log.warning("open_calls.not_counted", error=error.code)
            return OpenCalls(total=0, organizations=0, by_provider={})
        # What ended without a word here, as calls whose clients went away do.
        for invocation_id in own - open_calls.own:
            self._own.remove(invocation_id)
        return open_calls


class _Attempts:
    """How many holds of each organization are under way in this process, by provider."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[UUID, str]] = Counter()
        self._lock = threading.Lock()

    def enter(self, organization_id: UUID, provider: str) -> int:
        """Count one; give how many were under way before."""
        with self._lock:
            self._counts[organization_id, provider] += 1
            return self._counts[organization_id, provider] - 1

    def leave(self, organization_id: UUID, provider: str) -> None:
        """Count it no more."""
        with self._lock:
            self._counts[organization_id, provider] -= 1
            if not self._counts[organization_id, provider]:
                del self._counts[organization_id, provider]


class _OwnCalls:
    """The open calls that this process has begun."""

    def __init__(self) -> None:
        self._providers: dict[UUID, str] = {}
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, invocation_id: UUID, provider: str) -> None:
        with self._lock:
            self._providers[invocation_id] = provider
            self._counts[provider] += 1

    def remove(self, invocation_id: UUID) -> None:
        with self._lock:
            provider = self._providers.pop(invocation_id, None)
            if provider is not None:
                self._counts[provider] -= 1

    def by_provider(self) -> Counter[str]:
        with self._lock:
            return +self._counts

    def ids(self) -> frozenset[UUID]:
        with self._lock:
            return frozenset(self._providers)


class SlotAnnouncer:
    """What one worker process says of itself, from its start to its stop."""

    def __init__(self, valkey: redis.Redis, slots: int) -> None:
        self._valkey = valkey
        self._member = f"{uuid4().hex}:{slots}"
        self._announce: Any = valkey.register_script(_ANNOUNCE)
        self._thread = PeriodicThread(
            self._announce_slots, name="slots-announcer", pause_seconds=ANNOUNCE_SECONDS
        )

    def start(self) -> None:
        """Say it every second."""
        self._thread.start()

    def stop(self) -> None:
        """Take it back: this process takes no more calls."""
        self._thread.stop(wait=True)
        try:
            self._valkey.zrem(KEY, self._member)
        except redis.RedisError as error:
            log.info("slots.not_withdrawn", error=str(error))

    def _announce_slots(self) -> None:
        try:
            self._announce(keys=[KEY], args=[self._member, ANNOUNCEMENT_TTL_SECONDS])
        except redis.RedisError as error:
            log.warning("slots.not_announced", error=str(error))


def read_slots(valkey: redis.Redis) -> int | None:
    """Add up the slots of the workers that live; None where none is known. Raises redis.RedisError."""
    (seconds, microseconds), members = ask_together(valkey, ("TIME",), ("ZRANGE", KEY, 0, -1, "WITHSCORES"))
    now = int(seconds) + int(microseconds) / 1e6
    scored = (
        members if members and isinstance(members[0], list) else zip(members[::2], members[1::2], strict=True)
    )
    alive = [member for member, expires_at in scored if float(expires_at) > now]
    return sum(int(member.rpartition(b":")[2]) for member in alive) or None
