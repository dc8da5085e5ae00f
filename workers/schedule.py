"""The schedule of the sweeps. Every state in which a row can wait has one, so a lost message costs only its interval.

Two beats at once are harmless, because handlers claim their rows.
"""

from typing import Any

from shared.messaging.queues import QUEUES
from shared.observability.telemetry import SWEEP_INTERVAL_SECONDS
from shared.runtime.clock_skew import CLOCKS_APART_SECONDS
from workers.registry import handlers_of


def build_schedule() -> dict[str, dict[str, Any]]:
    """Return Celery's schedule of every handler with an interval."""
    sweeps = {
        handler: handler.every_seconds for handler in handlers_of(QUEUES) if handler.every_seconds is not None
    }
    for handler, every_seconds in sweeps.items():
        SWEEP_INTERVAL_SECONDS.labels(handler.kind).set(every_seconds)
    return {
        handler.kind: {
            "task": handler.kind,
            "schedule": every_seconds,
            # A message that no worker took within its interval is pointless, because the next one is due. Beat's clock
            # sets the expiry and the worker's clock, which may be ahead, checks it.
            "options": {
                "queue": handler.queue,
                "expires": every_seconds + CLOCKS_APART_SECONDS,
                "ignore_result": True,
            },
        }
        for handler, every_seconds in sweeps.items()
    }
