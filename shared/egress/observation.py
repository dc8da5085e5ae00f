"""Count and log each request to the outside, by its host alone: a URL's path or query may be a secret."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from shared.errors import DomainError
from shared.telemetry import EGRESS_BYTES, EGRESS_REQUESTS, EGRESS_SECONDS, get_logger

log = get_logger(__name__)
_HOST_CHARACTERS = 253


@dataclass(slots=True, kw_only=True)
class Observation:
    """What is known of a request when it is over."""

    received_bytes: int = 0


@contextmanager
def observed(purpose: str, host: str) -> Iterator[Observation]:
    """Record how the request within ended; `purpose` is one of a few words."""
    started = time.perf_counter()
    observation, outcome = Observation(), "failed"
    try:
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
