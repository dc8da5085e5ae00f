"""Circuit breakers: pause deliveries to a server that does not respond in time.

There is one breaker for each organization and origin. A breaker opens when an attempt is slow and fails. After a pause
the breaker is half-open and admits one attempt at a time. Any response, with any status, closes the breaker; another
failure doubles the pause. So a silent server rarely occupies more than one slot, even if many messages wait for it. No
attempt is counted for a message that waits for a breaker. Each process has its own breakers.
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
"""The seconds to wait while another thread's attempt probes a half-open breaker."""
REMEMBERED = 10_000
"""The most breakers that a process remembers. At the limit, the breaker that opened first is forgotten."""

Origin = tuple[UUID, str]
"""An organization's id, and a URL's scheme, host and port. The id is included so that tenants share no breaker."""


def origin_of(organization_id: UUID, url: str) -> Origin:
    """Return the origin of a URL. The origin of a URL that cannot be parsed is the whole URL."""
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

        If the result is 0, the caller must call `answered` or `failed` after the attempt.
        """
        with self._lock:
            breaker = self._breakers.get(origin)
            if breaker is None:
                return 0.0
            now = self._clock()
            if now < breaker.retry_at:
                return breaker.retry_at - now
            if breaker.is_probing:
                # Admit one probe at a time, so that the probes of a silent server occupy only one slot.
                return PROBE_SECONDS
            breaker.is_probing = True
            return 0.0

    def answered(self, origin: Origin) -> None:
        """Close the origin's breaker, because the server responded."""
        with self._lock:
            self._breakers.pop(origin, None)

    def failed(self, origin: Origin, *, is_slow: bool) -> None:
        """Open the origin's breaker if the failure was slow or the failed attempt was a probe."""
        with self._lock:
            breaker, now = self._breakers.get(origin), self._clock()
            if breaker is None:
                if is_slow:
                    self._open(origin, now)
            elif now >= breaker.retry_at:
                # Only a probe extends the pause. Other attempts were already running when the breaker opened.
                breaker.pause_seconds = min(2 * breaker.pause_seconds, LONGEST_PAUSE_SECONDS)
                breaker.retry_at = now + breaker.pause_seconds
                breaker.is_probing = False

    def _open(self, origin: Origin, now: float) -> None:
        if len(self._breakers) >= REMEMBERED:
            # Forget the breaker that opened first, which closes it. If its server is still silent, the next attempt
            # opens it again.
            self._breakers.popitem(last=False)
        self._breakers[origin] = _Breaker(now + FIRST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS)
