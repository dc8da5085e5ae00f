"""Calls queued by fronts of the release before, as entries of Valkey lists: they join the calls of this release.

While fronts of both releases run, a worker looks once a second. This module goes with the next release.
"""

from uuid import UUID

import redis

from shared.messaging.replies import ReplyAddress
from shared.messaging.valkey import ask_together
from shared.models.queue.call_messages import QueuedCall, queue_of
from shared.models.queue.call_queue import CallQueue
from shared.observability.telemetry import get_logger
from shared.runtime.periodic_thread import PeriodicThread

log = get_logger(__name__)

LOOK_SECONDS = 1.0
LISTS = tuple(f"quartermaster:model-calls:{number}" for number in range(16))
ASIDE = "quartermaster:model-calls-aside"
AT_ONCE = 100
_ID_BYTES = 16


class FormerCalls:
    """The lists of the release before, as one worker process looks after them."""

    def __init__(self, valkey: redis.Redis, queue: CallQueue) -> None:
        """Look at nothing yet."""
        self._valkey = valkey
        self._queue = queue
        self._thread = PeriodicThread(self.look, name="former-calls", pause_seconds=LOOK_SECONDS)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._thread.stop()

    def look(self) -> None:
        """Move what waits, as the thread does; while Valkey is away that is said in a line, and nothing is moved."""
        try:
            self._move()
        except redis.RedisError as error:
            log.warning("former_calls.not_moved", error=str(error))

    def _move(self) -> None:
        providers, *found = ask_together(self._valkey, ("SMEMBERS", ASIDE), *map(_take_from, LISTS))
        if providers:
            aside = (f"{ASIDE}:{provider.decode()}" for provider in providers)
            found += ask_together(self._valkey, *map(_take_from, aside))
        for entry in (entry for entries in found if entries for entry in entries):
            self._queue.give_back(_read(entry))


def _take_from(key: str) -> tuple[str, str, int]:
    return "LPOP", key, AT_ONCE


def _read(entry: bytes) -> QueuedCall:
    channel, _, provider = entry[_ID_BYTES:].partition(b"\0")
    address = ReplyAddress(invocation_id=UUID(bytes=entry[:_ID_BYTES]), channel=channel.decode())
    # The entry does not name its organization: the call goes to any queue of the provider's.
    queue = queue_of(provider.decode(), address.invocation_id)
    return QueuedCall(address=address, provider=provider.decode(), queue=queue)
