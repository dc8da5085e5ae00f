"""The modules with the handlers of each queue. A worker process imports the handlers of its own queues only.

The handlers of all queues would need half as much memory again in each process. A test fails if a handler's module is
missing here.
"""

from collections.abc import Collection
from importlib import import_module
from itertools import chain

from celery import Celery

from shared.messaging.jobs import HANDLERS, Handler
from shared.messaging.queues import AGENTS, LEDGER, MEDIA, MODELS, NOTIFICATIONS, RETENTION, UPLOADS
from workers.handling import WorkerContext, bind

MODULES = {
    UPLOADS: ("shared.files.lifecycle.placement",),
    RETENTION: (
        "shared.files.lifecycle.expiry",
        "shared.files.lifecycle.garbage_collection",
        "shared.files.sweeps",
        "shared.files.resumable.expiry",
        "shared.files.maintenance.scrubbing",
        "shared.identity.tokens.key_rotation",
        "shared.identity.sweeps",
        "shared.deliveries.purge",
        "shared.media.importing.claims",
        "shared.media.importing.paused_imports",
        "shared.media.network_settings",
        "shared.media.importing.import_notifications",
        "shared.a2a.inbound.retention",
        "shared.a2a.tasks.retention",
        "shared.a2a.turn_state.rows",
        "shared.a2a.schedules.scheduler",
    ),
    LEDGER: (
        "shared.files.metering.storage_charges",
        "shared.files.metering.storage_check",
        "shared.credits.sweeps",
        "shared.credits.reconciliation",
        "shared.credits.usage.rollups",
        "shared.credits.usage.pruning",
        "shared.credits.spending_limits.budget_alerts",
    ),
    MEDIA: ("shared.media.importing.fetch_job",),
    NOTIFICATIONS: ("shared.a2a.push.sender",),
    AGENTS: (
        "shared.a2a.turn_state.rows",
        "shared.a2a.remote.cards.card_refresh",
        "shared.a2a.remote.cancellation",
        "shared.a2a.inbound.dispatcher",
    ),
}
"""The modules with the handlers of each queue."""

CONSUMERS = {MODELS[0]: "workers.models", AGENTS: "workers.agents"}
"""The modules with `add_consumers`, for queues with work that does not come as Celery messages alone."""

CONTENT_QUEUES = frozenset({UPLOADS, RETENTION, MEDIA, AGENTS})
"""The queues with jobs that write, place or remove content."""


def bind_queues(app: Celery, context: WorkerContext, queues: Collection[str]) -> None:
    """Bind the handlers of all jobs of these queues."""
    for handler in handlers_of(queues):
        bind(app, handler, context)
    for queue, module in CONSUMERS.items():
        if queue in queues:
            # Import the module only if it is needed, to save memory.
            import_module(module).add_consumers(app, context)


def handlers_of(queues: Collection[str]) -> list[Handler]:
    """Return the handlers of these queues."""
    for module in chain.from_iterable(MODULES.get(queue, ()) for queue in queues):
        import_module(module)
    return [handler for handler in HANDLERS.values() if handler.queue in queues]
