"""Count and log each outgoing request. Only the host is logged, because a URL's path or query may be secret."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from shared.egress.errors import AddressRefused
from shared.errors import DomainError
from shared.observability.telemetry import EGRESS_BYTES, EGRESS_REQUESTS, EGRESS_SECONDS, get_logger
from shared.observability.tracing import span

log = get_logger(__name__)
_HOST_CHARACTERS = 253
PURPOSES = ("fetch", "ask", "post", "agent")
for _purpose in PURPOSES:  # created at 0: an alert on increase() misses a series' first sample
    for _outcome in ("ok", AddressRefused.code):
        EGRESS_REQUESTS.labels(_purpose, _outcome)


@dataclass(slots=True, kw_only=True)
class Observation:
    """The result of a request. The caller sets its attributes before the request ends."""

    received_bytes: int = 0


@contextmanager
def observed(purpose: str, host: str) -> Iterator[Observation]:
    """Record how the request in this block ended; `purpose` is one of PURPOSES."""
    started = time.perf_counter()
    observation, outcome = Observation(), "failed"
    request = span(f"egress {purpose}", "client", quartermaster__purpose=purpose, server__address=host)
    try:
        with request:
            yield observation
        outcome = "ok"
    except DomainError as error:
        outcome = error.code
        raise
    finally:
        seconds = time.perf_counter() - started
        EGRESS_REQUESTS.labels(purpose, outcome).inc()
        EGRESS_SECONDS.labels(purpose).observe(seconds)
        EGRESS_BYTES.labels(purpose).inc(observation.received_bytes)
        log.info(
            "egress.ended",
            purpose=purpose,
            host=host[:_HOST_CHARACTERS],
            outcome=outcome,
            bytes=observation.received_bytes,
            ms=round(seconds * 1000, 1),
        )
