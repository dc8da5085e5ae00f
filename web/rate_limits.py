"""Limit how often one credential, or one address with wrong credentials, may ask.

GCRA in Valkey: one key holds the moment at which the caller's allowance is used up; one script call decides. When
Valkey does not answer, requests pass unlimited for a second before it is asked again: a limit protects the service,
it does not decide what is right.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import redis

from shared.errors import DomainError, Kind
from shared.telemetry import get_logger

log = get_logger(__name__)

WINDOW_SECONDS = 60
BREAK_SECONDS = 1.0

# KEYS[1] the caller; ARGV: cost of one request in microseconds, window in microseconds.
# Answers {allowed, microseconds used of the window}.
_GCRA = """
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
local full_at = tonumber(redis.call('GET', KEYS[1]) or now)
if full_at < now then full_at = now end
local next_full_at = full_at + tonumber(ARGV[1])
if next_full_at - now > tonumber(ARGV[2]) then return {0, full_at - now} end
redis.call('SET', KEYS[1], string.format('%d', next_full_at), 'PX', math.ceil((next_full_at - now) / 1000))
return {1, next_full_at - now}
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


class RateLimiter:
    """Counts requests per key across all web processes."""

    def __init__(self, valkey: redis.Redis) -> None:
        """Keep the counts in this Valkey."""
        self._script: Any = valkey.register_script(_GCRA)
        self._broken_until = 0.0

    def take(self, key: str, limit: int) -> Allowance | None:
        """Take one request from `limit` a minute; None when there is no limit or nobody to ask."""
        if limit == 0 or time.monotonic() < self._broken_until:
            return None
        cost = WINDOW_SECONDS * 1_000_000 // limit
        try:
            allowed, used = self._script(keys=[f"rate:{key}"], args=[cost, WINDOW_SECONDS * 1_000_000])
        except redis.RedisError as error:
            self._broken_until = time.monotonic() + BREAK_SECONDS
            log.warning("rate_limit.unavailable", error=str(error))
            return None
        return Allowance(
            allowed=bool(allowed),
            limit=limit,
            remaining=max(0, (WINDOW_SECONDS * 1_000_000 - used) // cost),
            reset_seconds=math.ceil(used / 1_000_000),
        )


def refuse_excess(allowance: Allowance) -> None:
    """Raise `RateLimited` when a request was not allowed."""
    if not allowance.allowed:
        seconds = max(1, math.ceil(WINDOW_SECONDS / allowance.limit))
        raise RateLimited(retry_after_seconds=seconds, limit=allowance.limit)
