"""Listen on Valkey for announcements of turns, so that a worker claims an announced turn at once.

If an announcement is lost, the wake-up job or the next poll (twice a second) finds the same turn.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any
from uuid import UUID

import redis

from shared.a2a.tasks.task_notifier import TURNS_CHANNEL
from shared.observability.telemetry import get_logger
from shared.runtime.periodic_thread import PeriodicThread

log = get_logger(__name__)

PAUSE_SECONDS = 1.0
# Every worker receives every announcement, and so also keeps traces of turns that other workers run: limit their
# number.
REMEMBERED_TRACES = 4096
_ID_BYTES = 16


class TurnListener:
    """Receives the announcements for one worker process."""

    def __init__(self, valkey: redis.Redis, on_turn: Callable[[], object]) -> None:
        """Create a listener that calls `on_turn` for each announcement. `on_turn` must return at once."""
        self._valkey = valkey
        self._on_turn = on_turn
        self._traces: OrderedDict[UUID, str] = OrderedDict()
        self._thread = PeriodicThread(self._listen, name="turn-listener", pause_seconds=PAUSE_SECONDS)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._thread.stop()

    def take_trace(self, turn_id: UUID) -> str | None:
        """Return the trace that was announced for a turn, and delete the trace here. Return None if there is none."""
        return self._traces.pop(turn_id, None)

    def _remember(self, announcement: bytes) -> None:
        if len(announcement) > _ID_BYTES:
            self._traces[UUID(bytes=announcement[:_ID_BYTES])] = announcement[_ID_BYTES:].decode(
                "ascii", "replace"
            )
            if len(self._traces) > REMEMBERED_TRACES:  # the oldest belong to turns that other workers took
                self._traces.popitem(last=False)

    def _listen(self) -> None:
        try:
            with self._valkey.pubsub(ignore_subscribe_messages=True) as subscription:  # type: ignore[no-untyped-call]
                subscription.subscribe(TURNS_CHANNEL)
                while not self._thread.is_stopping:
                    message: Any = subscription.get_message(timeout=PAUSE_SECONDS)
                    if message is not None:
                        # Store the trace before the wake-up, because the thread that claims the turn reads the trace.
                        self._remember(message["data"])
                        self._on_turn()
        except redis.RedisError as error:
            log.warning("hints.interrupted", error=str(error))
