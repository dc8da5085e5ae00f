"""Which handlers a worker process has: those of the queues it serves, and no others.

What the handlers of every queue import is half as much memory again as a worker of one needs, in each of its processes.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module

from celery import Celery

from shared.jobs import AGENTS, LEDGER, MEDIA, MODELS, NOTIFICATIONS, RETENTION, UPLOADS
from workers.handling import WorkerContext

PARTS = {
    "files": (UPLOADS, RETENTION, LEDGER),
    "identity": (RETENTION,),
    "credits": (LEDGER,),
    "models": (MODELS,),
    "deliveries": (NOTIFICATIONS, RETENTION),
    "media": (MEDIA, NOTIFICATIONS, RETENTION),
    "agents": (AGENTS, RETENTION),
}
"""The modules of this package, each with a `bind_…` function, and the queues in which their jobs are."""

CONTENT_QUEUES = frozenset({UPLOADS, RETENTION, MEDIA, AGENTS})
"""The queues whose jobs write, place or remove content."""


def bind_parts(app: Celery, context: WorkerContext, queues: Collection[str]) -> None:
    """Bind the handlers of all jobs that come by these queues."""
    for part, served in PARTS.items():
        if not set(served).isdisjoint(queues):
            bind = getattr(import_module(f"workers.{part}"), f"bind_{part}")
            bind(app, context)
