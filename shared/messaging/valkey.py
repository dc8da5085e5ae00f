"""Connect to Valkey or Redis with short timeouts, so that a command fails instead of waiting."""

from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

TIMEOUT_SECONDS = 5.0
MAX_CONNECTIONS = 64
"""Connections of one client. A command uses one for its round trip; further threads wait."""


def connect_valkey(
    redis_url: str, *, timeout_seconds: float = TIMEOUT_SECONDS, max_connections: int = MAX_CONNECTIONS
) -> redis.Redis:
    """Return a client with time limits: every command ends within about three times `timeout_seconds`.

    A stale connection is replaced once: the library's default of ten retries with timeouts would block a request for
    a minute. A full pool waits, where the library's default pool would refuse the command.
    """
    pool = redis.BlockingConnectionPool.from_url(
        redis_url,
        max_connections=max_connections,
        timeout=timeout_seconds,
        socket_timeout=timeout_seconds,
        socket_connect_timeout=min(timeout_seconds, 1.0),
        # Do not retry after a timeout: a second timeout would double the wait.
        retry=Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
    )
    return redis.Redis.from_pool(pool)


def ask_together(valkey: redis.Redis, *commands: tuple[Any, ...]) -> list[Any]:
    """Send several commands in one round trip and return their results. Raises redis.RedisError.

    Without a transaction or a retry; redis-py's pipeline would double the CPU cost.
    """
    pool: Any = valkey.connection_pool
    connection = pool.get_connection()
    try:
        connection.send_packed_command(connection.pack_commands(commands))
        return [connection.read_response() for _ in commands]
    except BaseException:
        # Disconnect: a response may be unread, and the connection's next user would receive it.
        connection.disconnect()
        raise
    finally:
        pool.release(connection)


def writes_to_disk(valkey: redis.Redis) -> bool:
    """Return whether the server writes its data to disk, as a log or as snapshots. Raises redis.RedisError."""
    persistence: Any = valkey.info("persistence")
    snapshots: Any = valkey.config_get("save")
    return bool(persistence["aof_enabled"] or snapshots.get("save"))
