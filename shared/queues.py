"""The queues of background work, by kind of work, and which worker process serves each: one place for both."""

from itertools import chain

UPLOADS = "uploads"
RETENTION = "retention"
LEDGER = "ledger"
MODELS = "models"
MEDIA = "media"
NOTIFICATIONS = "notifications"
AGENTS = "agents"

WORKER_QUEUES = {
    "files": (UPLOADS,),
    "models": (MODELS,),
    "media": (MEDIA, NOTIFICATIONS),
    "agents": (AGENTS,),
    "background": (RETENTION,),
    # Threads of their own: holds of dead workers are not to wait for whatever has expired.
    "ledger": (LEDGER,),
}
QUEUES = tuple(chain.from_iterable(WORKER_QUEUES.values()))
