"""The schedule of the sweeps. A sweep is a job that runs periodically and finds rows that wait for work.

Every state in which a row can wait has a sweep. So a lost message delays the row's work by at most the sweep's
interval. Two beat processes at once are harmless, because handlers claim the rows on which they work.
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
            # Expire a message after its interval, when the next message is due. Add the clocks' maximum difference:
            # beat's clock sets the expiry, and the worker's clock, which may be ahead, checks it.
            "options": {
                "queue": handler.queue,
                "expires": every_seconds + CLOCKS_APART_SECONDS,
                "ignore_result": True,
            },
        }
        for handler, every_seconds in sweeps.items()
    }
