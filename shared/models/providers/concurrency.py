"""How many calls to a model run at once, over all workers: a semaphore in Valkey made of leases.

Protects upstreams that can only do so much (a local server above all). Leases run out by the server's clock unless
their process renews them, so a killed worker blocks its slots for seconds. If Valkey does not answer the call goes
ahead: the limit protects an upstream's comfort, not anyone's credits.
"""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from shared.models.catalog import ModelEntry
from shared.models.providers.errors import ProviderOverloaded
from shared.periodic_thread import InFlight
from shared.telemetry import get_logger

log = get_logger(__name__)

LEASE_SECONDS = 15.0
RENEW_EVERY_SECONDS = 5.0
RETRY_AFTER_SECONDS = 1

_TAKE = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
redis.call('EXPIRE', KEYS[1], math.ceil(ARGV[3] * 2))
return 1
"""
_RENEW = """
local time = redis.call('TIME')
redis.call('ZADD', KEYS[1], 'XX', time[1] + time[2] / 1000000 + ARGV[2], ARGV[1])
redis.call('EXPIRE', KEYS[1], math.ceil(ARGV[2] * 2))
"""


class ModelSlots:
    """The slots of one process; safe to share between threads."""

    def __init__(self, valkey: Redis, *, lease_seconds: float = LEASE_SECONDS) -> None:
        """Take a client; the thread that renews leases starts with the first."""
        self._valkey = valkey
        self._lease_seconds = lease_seconds
        self._take: Any = valkey.register_script(_TAKE)
        self._renew: Any = valkey.register_script(_RENEW)
        self._held: InFlight[tuple[str, str]] = InFlight(
            {"model-slots": self._renew_held},
            pause_seconds=lease_seconds * RENEW_EVERY_SECONDS / LEASE_SECONDS,
        )

    @contextmanager
    def slot(self, entry: ModelEntry) -> Iterator[None]:
        """Hold one of the model's slots during the block. Raises ProviderOverloaded if all are taken."""
        if entry.concurrency_limit is None:
            yield
            return
        key, lease = f"model:running:{entry.id}", uuid.uuid4().hex
        if not self._taken(key, lease, entry.concurrency_limit):
            raise ProviderOverloaded(
                "This model answers as many calls at once as it can; try again.",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        try:
            yield
        finally:
            self._give_back(key, lease)

    def close(self) -> None:
        """Renew no more."""
        self._held.stop(wait=True)

    def _taken(self, key: str, lease: str, limit: int) -> bool:
        try:
            is_taken = bool(self._take(keys=[key], args=[lease, limit, self._lease_seconds]))
        except RedisError:
            log.warning("model_slots.unavailable")
            return True
        if is_taken:
            self._held.add((lease, key))
        return is_taken

    def _give_back(self, key: str, lease: str) -> None:
        self._held.discard((lease, key))
        with suppress(RedisError):  # it runs out by itself
            self._valkey.zrem(key, lease)

    def _renew_held(self, held: Sequence[tuple[str, str]]) -> None:
        for lease, key in held:
            with suppress(RedisError):
                self._renew(keys=[key], args=[lease, self._lease_seconds])
