"""Bound the time in which a stopping worker settles its calls, and settle the remaining calls at the worker's end."""

import atexit

from shared.models.settlements import Settlements
from workers.handling import WorkerContext


def drain_settlements(context: WorkerContext, settlements: Settlements) -> None:
    """Register `shut_down` for the stop request, and `close` for the process's exit, after all calls have ended."""
    context.when_stopping(settlements.shut_down)
    atexit.register(settlements.close)
