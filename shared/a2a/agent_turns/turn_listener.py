"""Listen for announced turns on Valkey, so that a worker claims them at once.

It only saves time: a job and polling twice a second find the same turns.
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
# Every worker hears every announcement and keeps the traces of turns that others run.
REMEMBERED_TRACES = 4096
_ID_BYTES = 16


class TurnListener:
    """Receives the announcements for one worker process."""

    def __init__(self, valkey: redis.Redis, on_turn: Callable[[], object]) -> None:
        """Call `on_turn` for each announcement; it must return at once."""
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
        """Return the trace that was announced for a turn and forget it; None if there was none."""
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
                        # Before the wake-up: the thread that claims the turn looks for its trace.
                        self._remember(message["data"])
                        self._on_turn()
        except redis.RedisError as error:
            log.warning("hints.interrupted", error=str(error))
