"""When the sweeps run: every state a row can wait in has one, so that a lost message only costs its interval.

Two beats at once are harmless: handlers claim what they do.
"""

from typing import Any

from shared.messaging.queues import QUEUES
from shared.observability.telemetry import SWEEP_INTERVAL_SECONDS
from shared.runtime.clock_skew import CLOCKS_APART_SECONDS
from workers.registry import handlers_of


def build_schedule() -> dict[str, dict[str, Any]]:
    """Give Celery's schedule of every handler that has an interval."""
    sweeps = {
        handler: handler.every_seconds for handler in handlers_of(QUEUES) if handler.every_seconds is not None
    }
    for handler, every_seconds in sweeps.items():
        SWEEP_INTERVAL_SECONDS.labels(handler.kind).set(every_seconds)
    return {
        handler.kind: {
            "task": handler.kind,
            "schedule": every_seconds,
            # A sweep that no worker took within its interval is pointless: the next one is due. Celery writes down the
            # moment by beat's clock and compares it with the worker's, which may be ahead.
            "options": {
                "queue": handler.queue,
                "expires": every_seconds + CLOCKS_APART_SECONDS,
                "ignore_result": True,
            },
        }
        for handler, every_seconds in sweeps.items()
    }
