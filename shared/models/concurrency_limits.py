"""An organization's share of model calls: how many open calls it may have at this moment.

Every second, each worker writes its number of slots to Valkey, in an entry that expires after five seconds by Valkey's
clock. The rule of `shared/fairness/admission.py` is applied twice over all processes. A provider may use at most
`PROVIDER_ALPHA` times the free slots. Within the provider's room, an organization may use all of the room, or an equal
part among the active organizations and one newcomer. A call counts from its hold to its settlement.

The calls of other processes are counted every `SNAPSHOT_SECONDS`. The calls of this process are counted exactly, so
that the end of a short call makes room before the next count.
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
"""One provider may use at most seven eighths of the slots."""
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
    """Return how many open calls an organization may have for one more call of `provider`; 0 if there is no room."""
    free = slots - open_calls.total
    used = open_calls.by_provider.get(provider, 0)
    providers = len(open_calls.by_provider.keys() | {provider})
    # Each further call also takes one slot from `free`, so `more` is the number of calls until `used + more` reaches
    # `PROVIDER_ALPHA * (free - more)`.
    more = math.ceil((PROVIDER_ALPHA * free - used) / (PROVIDER_ALPHA + 1))
    # A provider gets at least an equal part among the active providers and one more, even if `more` is smaller.
    room = min(free, max(more, math.ceil(slots / (providers + 1) - used)))
    if room <= 0:
        return 0
    # Round an organization's part down: if all parts were rounded up, their sum would exceed the room.
    return max(1, room, (room + used) // (max(1, open_calls.organizations) + 1))


class Shares:
    """The shares of organizations, as one process computes them; safe to share between threads."""

    def __init__(self, database: Database, valkey: redis.Redis, *, slots_when_unknown: int) -> None:
        """Create shares, without reading from Postgres or Valkey.

        `slots_when_unknown` is the number of slots to assume while no worker has announced any.
        """
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
        """Yield the maximum number of open calls for an organization that starts another call; None means unlimited.

        Concurrent attempts of an organization reduce each other's maximum, otherwise each could take all free slots.
        """
        others = self._attempts.enter(organization_id, provider)
        try:
            yield self.of(provider, attempts=others)
        finally:
            self._attempts.leave(organization_id, provider)

    def of(self, provider: str, *, attempts: int = 0) -> int | None:
        """Return an organization's maximum number of open calls, with this many attempts already under way."""
        if not self._is_fair:
            return None
        snapshot = self._current_snapshot()
        # Count attempts as open calls, because most attempts become open calls in a moment.
        own = self._own.by_provider() + Counter({provider: attempts})
        open_calls = OpenCalls(
            total=snapshot.others.total + own.total(),
            organizations=snapshot.others.organizations,
            by_provider=Counter(snapshot.others.by_provider) + own if own else snapshot.others.by_provider,
        )
        return share_of(snapshot.slots, open_calls, provider)

    def begin(self, invocation_id: UUID, provider: str) -> None:
        """Count a call after its credits were reserved."""
        self._own.add(invocation_id, provider)

    def end(self, invocation_id: UUID) -> None:
        """Stop counting a call of this process, because it has ended or another process owns it now."""
        self._own.remove(invocation_id)

    def _current_snapshot(self) -> _Snapshot:
        """Return the latest counts. One thread refreshes the counts while other threads use the previous counts."""
        snapshot = self._snapshot
        if snapshot is not None and time.monotonic() - snapshot.read_at < SNAPSHOT_SECONDS:
            return snapshot
        is_first_read = snapshot is None
        if not self._reading.acquire(blocking=is_first_read):
            # Another thread refreshes. The lock is not acquired only if a previous snapshot exists, so return that.
            return snapshot  # type: ignore[return-value]
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
            # Continue with no calls: the hold fails for the same reason and reports the error to the caller.
            log.warning("open_calls.not_counted", error=error.code)
            return OpenCalls(total=0, organizations=0, by_provider={})
        # Stop counting calls that ended without a notice to this process, for instance after their clients had left.
        for invocation_id in own - open_calls.own:
            self._own.remove(invocation_id)
        return open_calls


class _Attempts:
    """The number of attempts under way in this process, by organization and provider."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[UUID, str]] = Counter()
        self._lock = threading.Lock()

    def enter(self, organization_id: UUID, provider: str) -> int:
        """Count an attempt. Return how many other attempts were already under way."""
        with self._lock:
            self._counts[organization_id, provider] += 1
            return self._counts[organization_id, provider] - 1

    def leave(self, organization_id: UUID, provider: str) -> None:
        """Stop counting an attempt."""
        with self._lock:
            self._counts[organization_id, provider] -= 1
            if not self._counts[organization_id, provider]:
                del self._counts[organization_id, provider]


class _OwnCalls:
    """The open calls that this process has started."""

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
    """Announces the slots of one worker process, from its start to its stop."""

    def __init__(self, valkey: redis.Redis, slots: int) -> None:
        self._valkey = valkey
        self._member = f"{uuid4().hex}:{slots}"
        self._announce: Any = valkey.register_script(_ANNOUNCE)
        self._thread = PeriodicThread(
            self._announce_slots, name="slots-announcer", pause_seconds=ANNOUNCE_SECONDS
        )

    def start(self) -> None:
        """Announce the slots every second."""
        self._thread.start()

    def stop(self) -> None:
        """Withdraw the announcement: this process takes no more calls."""
        # Wait for the thread's last round, which could otherwise announce the slots again after the withdrawal.
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
    """Return the slots of all live workers, or None if no worker is known. Raises redis.RedisError."""
    (seconds, microseconds), members = ask_together(valkey, ("TIME",), ("ZRANGE", KEY, 0, -1, "WITHSCORES"))
    now = int(seconds) + int(microseconds) / 1e6
    scored = (
        # RESP3 returns pairs, RESP2 one flat list.
        members if members and isinstance(members[0], list) else zip(members[::2], members[1::2], strict=True)
    )
    alive = [member for member, expires_at in scored if float(expires_at) > now]
    return sum(int(member.rpartition(b":")[2]) for member in alive) or None
