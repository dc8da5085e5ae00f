"""Rate limits of a credential, or of an address that sends wrong credentials, across all web processes.

The algorithm is GCRA in Valkey: one key stores when the allowance is full again, and one script decides. If a
limit is high, a process reserves a batch of requests in Valkey and counts it down locally. The unused rest of
a batch expires after a second. While Valkey is unavailable, requests pass: a rate limit protects the service
and grants no access.
"""

import math
import threading
import time
from dataclasses import dataclass, replace
from typing import Any

import redis

from shared.errors import DomainError, Kind
from shared.observability.telemetry import get_logger

log = get_logger(__name__)

WINDOW_SECONDS = 60
BREAK_SECONDS = 1.0
# A batch is at most the limit of a minute divided by this number.
BATCHES_IN_LIMIT = 3000
# The unused rest of a batch expires after this time. No other process can use the rest, so keep the time short.
BATCH_SECONDS = 1.0
MAX_BATCHES = 4096

# KEYS[1] identifies the caller. ARGV: cost of one request in µs, window in µs, number of wanted requests.
# Returns {number of allowed requests, used µs of the window}.
_GCRA = """
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
local full_at = tonumber(redis.call('GET', KEYS[1]) or now)
if full_at < now then full_at = now end
local allowed = math.min(tonumber(ARGV[3]), math.floor((now + ARGV[2] - full_at) / ARGV[1]))
if allowed < 1 then return {0, full_at - now} end
local next_full_at = full_at + allowed * ARGV[1]
redis.call('SET', KEYS[1], string.format('%d', next_full_at), 'PX', math.ceil((next_full_at - now) / 1000))
return {allowed, next_full_at - now}
"""


class RateLimited(DomainError):
    """Too many requests. Wait for the seconds in `Retry-After`."""

    code = "rate_limited"
    kind = Kind.LIMITED


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """The allowance that a caller has left after a request."""

    allowed: bool
    limit: int
    remaining: int
    reset_seconds: int

    def headers(self) -> dict[str, str]:
        """Return the `RateLimit` headers (draft-ietf-httpapi-ratelimit-headers)."""
        return {
            "RateLimit-Policy": f'"default";q={self.limit};w={WINDOW_SECONDS}',
            "RateLimit": f'"default";r={self.remaining};t={self.reset_seconds}',
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """Requests that were reserved in advance: their number, and when they expire (monotonic seconds)."""

    count: int
    allowance: Allowance
    expires_at: float

    def is_good(self, limit: int) -> bool:
        return self.count > 0 and self.allowance.limit == limit and time.monotonic() < self.expires_at

    def as_allowance(self) -> Allowance:
        return replace(self.allowance, remaining=self.allowance.remaining + self.count)


class RateLimiter:
    """Counts requests per key across all web processes."""

    def __init__(self, valkey: redis.Redis) -> None:
        self._script: Any = valkey.register_script(_GCRA)
        self._broken_until = 0.0
        self._batches: dict[str, _Batch] = {}
        self._changing = threading.Lock()

    def take(self, key: str, limit: int) -> Allowance | None:
        """Count one request against `limit` a minute.

        Return None if there is no limit or Valkey is unavailable.
        """
        if limit == 0:
            return None
        return self._take_from_batch(key, limit) or self._take_shared(key, limit)

    def _take_from_batch(self, key: str, limit: int) -> Allowance | None:
        with self._changing:
            batch = self._batches.get(key)
            if batch is None or not batch.is_good(limit):
                return None
            self._batches[key] = batch = replace(batch, count=batch.count - 1)
        return batch.as_allowance()

    def _take_shared(self, key: str, limit: int) -> Allowance | None:
        if time.monotonic() < self._broken_until:
            return None
        # A limit below 6,000 a minute takes no batches: each request is counted in Valkey.
        cost, wanted = WINDOW_SECONDS * 1_000_000 // limit, max(1, limit // BATCHES_IN_LIMIT)
        try:
            count, used = self._script(keys=[f"rate:{key}"], args=[cost, WINDOW_SECONDS * 1_000_000, wanted])
        except redis.RedisError as error:
            # Do not call Valkey again for a second: each attempt could take as long as the timeout.
            self._broken_until = time.monotonic() + BREAK_SECONDS
            log.warning("rate_limit.unavailable", error=str(error))
            return None
        allowance = Allowance(
            allowed=count > 0,
            limit=limit,
            remaining=max(0, (WINDOW_SECONDS * 1_000_000 - used) // cost),
            reset_seconds=math.ceil(used / 1_000_000),
        )
        # The current request uses one request of the batch, so store the others for later requests.
        return self._store(key, count - 1, allowance) if count > 1 else allowance

    def _store(self, key: str, count: int, allowance: Allowance) -> Allowance:
        """Store unused requests of a batch. Add them to a batch that another thread stored meanwhile."""
        with self._changing:
            other = self._batches.pop(key, None)
            if other is not None and other.is_good(allowance.limit):
                count += other.count
            # Remove the oldest batches first, so that memory stays bounded with many callers.
            while len(self._batches) >= MAX_BATCHES:
                del self._batches[next(iter(self._batches))]
            batch = _Batch(count=count, allowance=allowance, expires_at=time.monotonic() + BATCH_SECONDS)
            self._batches[key] = batch
        return batch.as_allowance()


def refuse_excess(allowance: Allowance) -> None:
    """Raise RateLimited if the request was not allowed."""
    if not allowance.allowed:
        # After this number of seconds one more request fits into the window.
        seconds = max(1, math.ceil(WINDOW_SECONDS / allowance.limit))
        raise RateLimited(retry_after_seconds=seconds, limit=allowance.limit)
