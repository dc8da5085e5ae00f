"""Rate limits: how often one credential, or one address with wrong credentials, may ask.

GCRA in Valkey: one key holds when the allowance is used up; one script decides. Under a high limit a process takes a
few requests at a time and counts them down itself; those not used within a second are lost to the caller. While
Valkey does not answer, requests pass: a limit protects the service, it does not decide what is right.
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
BATCHES_IN_LIMIT = 3000  # the most a process takes at once is so small a part of the limit
HELD_SECONDS = 1.0
HELD_KEYS = 4096

# KEYS[1] the caller; ARGV: cost of one request in microseconds, window in microseconds, how many are wanted. Answers
# {how many are allowed, microseconds used of the window}.
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
    """Too many requests; wait as long as `Retry-After` says."""

    code = "rate_limited"
    kind = Kind.LIMITED


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What is left to a caller after a request."""

    allowed: bool
    limit: int
    remaining: int
    reset_seconds: int

    def headers(self) -> dict[str, str]:
        """Give the `RateLimit` fields (draft-ietf-httpapi-ratelimit-headers)."""
        return {
            "RateLimit-Policy": f'"default";q={self.limit};w={WINDOW_SECONDS}',
            "RateLimit": f'"default";r={self.remaining};t={self.reset_seconds}',
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """Requests taken in advance: how many are left, and until when they are good."""

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
        self._held: dict[str, _Held] = {}
        self._changing = threading.Lock()

    def take(self, key: str, limit: int) -> Allowance | None:
        """Take one request from `limit` a minute; None when there is no limit or nobody to ask."""
        if limit == 0:
            return None
        return self._take_held(key, limit) or self._take_shared(key, limit)

    def _take_held(self, key: str, limit: int) -> Allowance | None:
        with self._changing:
            held = self._held.get(key)
            if held is None or not held.is_good(limit):
                return None
            self._held[key] = held = replace(held, count=held.count - 1)
        return held.as_allowance()

    def _take_shared(self, key: str, limit: int) -> Allowance | None:
        if time.monotonic() < self._broken_until:
            return None
        cost, wanted = WINDOW_SECONDS * 1_000_000 // limit, max(1, limit // BATCHES_IN_LIMIT)
        try:
            count, used = self._script(keys=[f"rate:{key}"], args=[cost, WINDOW_SECONDS * 1_000_000, wanted])
        except redis.RedisError as error:
            self._broken_until = time.monotonic() + BREAK_SECONDS
            log.warning("rate_limit.unavailable", error=str(error))
            return None
        allowance = Allowance(
            allowed=count > 0,
            limit=limit,
            remaining=max(0, (WINDOW_SECONDS * 1_000_000 - used) // cost),
            reset_seconds=math.ceil(used / 1_000_000),
        )
        return self._hold(key, count - 1, allowance) if count > 1 else allowance

    def _hold(self, key: str, count: int, allowance: Allowance) -> Allowance:
        """Keep what was taken beyond this request, with what another thread may have taken meanwhile."""
        with self._changing:
            other = self._held.pop(key, None)
            if other is not None and other.is_good(allowance.limit):
                count += other.count
            while len(self._held) >= HELD_KEYS:
                del self._held[next(iter(self._held))]
            held = _Held(count=count, allowance=allowance, expires_at=time.monotonic() + HELD_SECONDS)
            self._held[key] = held
        return held.as_allowance()


def refuse_excess(allowance: Allowance) -> None:
    """Raise `RateLimited` when a request was not allowed."""
    if not allowance.allowed:
        seconds = max(1, math.ceil(WINDOW_SECONDS / allowance.limit))
        raise RateLimited(retry_after_seconds=seconds, limit=allowance.limit)
