"""Have a worker that is asked to stop settle its calls as long as it may, and those that are late at its very end."""

import atexit

from shared.models.settlements import Settlements
from workers.handling import WorkerContext


def drain_settlements(context: WorkerContext, settlements: Settlements) -> None:
    """Settle when this process ends, after its threads: their calls end only then."""
    context.when_stopping(settlements.shut_down)
    atexit.register(settlements.close)
