"""A circuit breaker for each origin an organization posts to: pause servers that do not respond in time.

It opens when an attempt times out, for a growing pause. After that it is half-open: it lets one attempt at a time
through, and any response, with any status, closes it. So a silent server occupies one slot now and then, however
many messages wait for it. Waiting messages count no attempt. Each process has its own breakers.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit
from uuid import UUID

FIRST_PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 300.0
PROBE_SECONDS = 10.0
"""How long to wait while another thread's attempt is the probe."""
REMEMBERED = 10_000
"""Most open breakers at once; the ones opened first are forgotten."""

Origin = tuple[UUID, str]
"""An organization, and the scheme, host and port it posts to: tenants do not share a breaker."""


def origin_of(organization_id: UUID, url: str) -> Origin:
    """Return the origin of a URL; one that cannot be parsed is an origin of its own."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return organization_id, url
    return organization_id, f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}"


@dataclass(slots=True)
class _Breaker:
    """A breaker that is open or half-open."""

    retry_at: float
    pause_seconds: float
    is_probing: bool = False


class CircuitBreakers:
    """The breakers of a process that are not closed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._breakers: OrderedDict[Origin, _Breaker] = OrderedDict()
        self._lock = threading.Lock()

    def admit(self, origin: Origin) -> float:
        """Return 0 if the server may be contacted now, else the seconds to wait.

        After a 0, call `answered` or `failed`.
        """
        with self._lock:
            breaker = self._breakers.get(origin)
            if breaker is None:
                return 0.0
            now = self._clock()
            if now < breaker.retry_at:
                return breaker.retry_at - now
            if breaker.is_probing:
                # One probe at a time, so that a silent server never occupies more than one slot.
                return PROBE_SECONDS
            breaker.is_probing = True
            return 0.0

    def answered(self, origin: Origin) -> None:
        """Close the breaker."""
        with self._lock:
            self._breakers.pop(origin, None)

    def failed(self, origin: Origin, *, is_slow: bool) -> None:
        """Open the breaker after a slow failure, or after any failure of a probe."""
        with self._lock:
            breaker, now = self._breakers.get(origin), self._clock()
            if breaker is None:
                if is_slow:
                    self._open(origin, now)
            elif now >= breaker.retry_at:
                # Otherwise the attempt was already running when the breaker opened and is no probe.
                breaker.pause_seconds = min(2 * breaker.pause_seconds, LONGEST_PAUSE_SECONDS)
                breaker.retry_at = now + breaker.pause_seconds
                breaker.is_probing = False

    def _open(self, origin: Origin, now: float) -> None:
        if len(self._breakers) >= REMEMBERED:
            # Forgetting one closes it: the next attempt finds out again.
            self._breakers.popitem(last=False)
        self._breakers[origin] = _Breaker(now + FIRST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS)
