"""The queues of background work, and the type of worker process that serves each queue."""

from itertools import chain

UPLOADS = "uploads"
RETENTION = "retention"
LEDGER = "ledger"
MODELS = tuple(f"models.{number}" for number in range(16))
"""A model call is queued by a hash of its provider and organization; a worker reads these queues round robin."""
MEDIA = "media"
NOTIFICATIONS = "notifications"
AGENTS = "agents"

WORKER_QUEUES = {
    "files": (UPLOADS,),
    "models": MODELS,
    "media": (MEDIA, NOTIFICATIONS),
    "agents": (AGENTS,),
    "background": (RETENTION,),
    # Use separate threads: releasing the credit holds of dead workers must not wait behind long sweeps.
    "ledger": (LEDGER,),
}
QUEUES = tuple(chain.from_iterable(WORKER_QUEUES.values()))

MODELS_ASIDE = "models.aside."
"""Prefix of a provider's queue for calls that a worker could not run for lack of that provider's slots."""
