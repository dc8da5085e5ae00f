"""Settle the calls of a stopping worker while it may, and pending settlements at its very end."""

import atexit

from shared.models.settlements import Settlements
from workers.handling import WorkerContext


def drain_settlements(context: WorkerContext, settlements: Settlements) -> None:
    """Register the shutdown of settlements, and their end after the threads, because calls end only then."""
    context.when_stopping(settlements.shut_down)
    atexit.register(settlements.close)
