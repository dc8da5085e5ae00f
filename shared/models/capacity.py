"""How many model calls the live workers can carry out at once: each says so every second in Valkey, for five.

A dead worker's entry expires by Valkey's clock.
"""

from typing import Any
from uuid import uuid4

import redis

from shared.periodic_thread import PeriodicThread
from shared.telemetry import get_logger
from shared.valkey import ask_together

log = get_logger(__name__)

KEY = "quartermaster:model-workers"
ANNOUNCE_SECONDS = 1.0
EXPIRY_SECONDS = 5.0
_ANNOUNCE = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
"""


class Announcement:
    """What one worker process says of itself, from its start to its stop."""

    def __init__(self, valkey: redis.Redis, slots: int) -> None:
        self._valkey = valkey
        self._member = f"{uuid4().hex}:{slots}"
        self._announce: Any = valkey.register_script(_ANNOUNCE)
        self._thread = PeriodicThread(self._say, name="slots-announcer", pause_seconds=ANNOUNCE_SECONDS)

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

    def _say(self) -> None:
        try:
            self._announce(keys=[KEY], args=[self._member, EXPIRY_SECONDS])
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
