"""The pools of the front: what a process has a bounded number of, and shares among those who want it.

A request in progress holds a thread; whatever a slow client or model prolongs (bodies, downloads, streams, answers)
also holds a slot of a second pool, so that no kind of it takes all threads. Threads are divided into those that work,
those that wait for a slot, those that look credentials up, and a few for health checks.
"""

from dataclasses import dataclass

from shared.config.settings import Settings
from shared.fairness.admission import Pool

WAITING_PART = 4
"""One thread in so many may wait for a slot."""
LOOKUP_WAITING_PART = 8
"""One thread in so many may wait for a lookup, which takes milliseconds."""
RESERVED_PART = 32
"""One thread in so many looks credentials up, and as many are left for health checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """The pools of one process, by what a slot stands for."""

    requests: Pool
    """Requests that are being answered; each holds a thread."""
    probes: Pool
    """Health checks; one that gets no slot is answered too."""
    lookups: Pool
    """Requests whose credential is looked up in the database; the tenants are addresses."""
    small_bodies: Pool
    """JSON and form bodies that are still being received."""
    uploads: Pool
    """Uploads that are being received."""
    downloads: Pool
    """Downloads that are being sent."""
    streams: Pool
    """Streams of tasks, and sends that wait for their answer."""
    model_calls: Pool
    """Model calls that are not answered to their end."""


def build_pools(settings: Settings) -> Pools:
    """Make the pools of this process."""
    threads = settings.web_threads
    waiting, reserved = max(1, threads // WAITING_PART), max(1, threads // RESERVED_PART)
    lookups, lookups_waiting = max(2, reserved), max(2, threads // LOOKUP_WAITING_PART)
    working = threads - waiting - lookups - lookups_waiting - reserved

    def pool(name: str, slots: int, *, waiting: int | None = None) -> Pool:
        return Pool(name, slots, waiting=waiting, max_wait_seconds=settings.slot_wait_seconds)

    return Pools(
        requests=pool("requests", max(1, working), waiting=waiting),
        probes=pool("probes", reserved, waiting=0),
        lookups=pool("lookups", lookups, waiting=lookups_waiting),
        small_bodies=pool("small_bodies", settings.concurrent_small_bodies),
        uploads=pool("uploads", settings.concurrent_uploads),
        downloads=pool("downloads", settings.concurrent_downloads),
        streams=pool("streams", settings.streams_per_process),
        model_calls=pool("model_calls", settings.concurrent_model_calls),
    )
