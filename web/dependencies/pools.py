"""The pools of slots of a web process, for admission control and load shedding.

A request occupies a thread. Work that a slow client or model prolongs (bodies, downloads, streams, model
calls) also occupies a slot in a pool for that kind of work, so that no kind takes all threads. The threads
are divided too: most threads work, some wait for a slot, some look up credentials, and a few are reserved for
health checks.
"""

from dataclasses import dataclass

from shared.config.settings import Settings
from shared.fairness.admission import Pool

WAITING_PART = 4
"""One thread in four may wait for a slot."""
LOOKUP_WAITING_PART = 8
"""One thread in eight may wait for a lookup, which takes milliseconds."""
RESERVED_PART = 32
"""One thread in 32 looks up credentials, and one in 32 is reserved for health checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """The pools of one process. Each pool is named after the work that its slots limit."""

    requests: Pool
    """Requests in progress. Each request occupies a thread."""
    probes: Pool
    """Health checks. A health check without a slot is answered too."""
    lookups: Pool
    """Lookups of credentials in the database. Client addresses take the place of tenants."""
    small_bodies: Pool
    """JSON and form bodies that are being received."""
    uploads: Pool
    """Uploads that are being received."""
    downloads: Pool
    """Downloads that are being sent."""
    streams: Pool
    """Streams of tasks, and message requests that wait for the task."""
    model_calls: Pool
    """Model calls. Each keeps its slot until the end of its response."""


def build_pools(settings: Settings) -> Pools:
    """Create the pools of this process."""
    threads = settings.web_threads
    waiting, reserved = max(1, threads // WAITING_PART), max(1, threads // RESERVED_PART)
    # At least two slots, so that in a process with few threads one slow lookup does not stop all others.
    lookups, lookups_waiting = max(2, reserved), max(2, threads // LOOKUP_WAITING_PART)
    working = threads - waiting - lookups - lookups_waiting - reserved

    def pool(name: str, slots: int, *, waiting: int | None = None) -> Pool:
        return Pool(name, slots, waiting=waiting, max_wait_seconds=settings.slot_wait_seconds)

    return Pools(
        requests=pool("requests", max(1, working), waiting=waiting),
        # A health check must not wait: it is answered even without a slot.
        probes=pool("probes", reserved, waiting=0),
        lookups=pool("lookups", lookups, waiting=lookups_waiting),
        small_bodies=pool("small_bodies", settings.concurrent_small_bodies),
        uploads=pool("uploads", settings.concurrent_uploads),
        downloads=pool("downloads", settings.concurrent_downloads),
        streams=pool("streams", settings.streams_per_process),
        model_calls=pool("model_calls", settings.concurrent_model_calls),
    )
