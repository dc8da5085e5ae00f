"""The queues of background work, by kind of work, and which worker process serves each: one place for both."""

from itertools import chain

UPLOADS = "uploads"
RETENTION = "retention"
LEDGER = "ledger"
MODELS = tuple(f"models.{number}" for number in range(16))
"""A model call waits in one of them, by a hash of its provider and organization; a worker reads them in turn."""
MEDIA = "media"
NOTIFICATIONS = "notifications"
AGENTS = "agents"

WORKER_QUEUES = {
    "files": (UPLOADS,),
    "models": MODELS,
    "media": (MEDIA, NOTIFICATIONS),
    "agents": (AGENTS,),
    "background": (RETENTION,),
    # Threads of their own: holds of dead workers are not to wait for whatever has expired.
    "ledger": (LEDGER,),
}
QUEUES = tuple(chain.from_iterable(WORKER_QUEUES.values()))

MODELS_ASIDE = "models.aside."
"""With a provider's name behind it, the queue of calls for which a worker had no room at their provider."""
