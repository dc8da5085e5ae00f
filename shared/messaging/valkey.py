"""Connect to Valkey (or Redis), rather failing than waiting."""

from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

TIMEOUT_SECONDS = 5.0
MAX_CONNECTIONS = 64
"""Of one client; a command needs one for its round trip only, and threads beyond these wait for their turn."""


def connect_valkey(
    redis_url: str, *, timeout_seconds: float = TIMEOUT_SECONDS, max_connections: int = MAX_CONNECTIONS
) -> redis.Redis:
    """Prepare a client whose every command ends within about thrice the time given.

    A stale connection is made anew once; the library's ten repeats, timeouts included, would hold a request for a
    minute. A full pool waits, where the library's own refuses the hundred-and-first command.
    """
    pool = redis.BlockingConnectionPool.from_url(
        redis_url,
        max_connections=max_connections,
        timeout=timeout_seconds,
        socket_timeout=timeout_seconds,
        socket_connect_timeout=min(timeout_seconds, 1.0),
        retry=Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
    )
    return redis.Redis.from_pool(pool)


def ask_together(valkey: redis.Redis, *commands: tuple[Any, ...]) -> list[Any]:
    """Send commands and read their answers in one round trip, without a transaction or a retry.

    A pipeline's own work would cost as much again. Raises redis.RedisError.
    """
    pool: Any = valkey.connection_pool
    connection = pool.get_connection()
    try:
        connection.send_packed_command(connection.pack_commands(commands))
        return [connection.read_response() for _ in commands]
    except BaseException:
        connection.disconnect()
        raise
    finally:
        pool.release(connection)


def writes_to_disk(valkey: redis.Redis) -> bool:
    """Tell whether a server writes what it holds to a disk, by a log or by snapshots. Raises redis.RedisError."""
    persistence: Any = valkey.info("persistence")
    snapshots: Any = valkey.config_get("save")
    return bool(persistence["aof_enabled"] or snapshots.get("save"))
