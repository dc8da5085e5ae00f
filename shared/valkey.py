"""Connect to Valkey (or Redis), rather failing than waiting."""

from __future__ import annotations

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

TIMEOUT_SECONDS = 5.0


def connect_valkey(
    redis_url: str, *, timeout_seconds: float = TIMEOUT_SECONDS, max_connections: int | None = None
) -> redis.Redis:
    """Prepare a client whose every command ends, one way or the other, within about twice the time given.

    A connection that has gone stale is made anew once; the library's ten repeats, timeouts included, would hold a
    request for a minute when Valkey accepts and does not answer.
    """
    return redis.Redis.from_url(
        redis_url,
        max_connections=max_connections,
        socket_timeout=timeout_seconds,
        socket_connect_timeout=min(timeout_seconds, 1.0),
        retry=Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
    )
