"""The queues of background work by kind, and the worker process that serves each."""

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
    # Threads of their own: releasing the credit holds of dead workers must not wait behind long sweeps.
    "ledger": (LEDGER,),
}
QUEUES = tuple(chain.from_iterable(WORKER_QUEUES.values()))

MODELS_ASIDE = "models.aside."
"""Prefix of a provider's queue for calls that a worker could not run for lack of that provider's slots."""
