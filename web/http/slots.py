"""The slots that a request holds in each pool, and the key for which the slots count at the moment."""

from wsgiref.types import WSGIEnvironment

from shared.fairness.admission import Pool, PoolKey, Slot, anonymous_key
from web.http.client_address import client_address

# Key in a request's environ. The value is the request's `Admission`, if it has one.
ADMISSION = "quartermaster.admission"


class Admission:
    """The slots of one request. Only one thread at a time uses this object."""

    def __init__(self, key: PoolKey, thread: Slot | None = None, *, waited_seconds: float = 0.0) -> None:
        """Start with the slot of the request's thread, or with none for a health probe."""
        self.key = key
        self.waited_seconds = waited_seconds
        self.is_responding = False
        self._thread = thread
        self._held: list[Slot] = []

    @property
    def has_thread(self) -> bool:
        """Whether the request holds a slot for its thread."""
        return self._thread is not None

    def move(self, key: PoolKey) -> None:
        """Count the request's slots for another key from now on. Raises ConcurrencyLimited, PoolExhausted."""
        if key != self.key and self._thread is not None:
            self._thread.move(key, waited_seconds=self.waited_seconds)
        self.key = key

    def hold(self, pool: Pool) -> None:
        """Acquire a slot of another pool until the response has been sent. Raises ConcurrencyLimited, PoolExhausted."""
        self._held.append(pool.acquire(self.key, waited_seconds=self.waited_seconds))

    def leave_thread(self) -> None:
        """Release only the thread's slot, because a deferred response needs no thread."""
        if self._thread is not None:
            self._thread.release()

    def end(self) -> None:
        """Release all slots. A second call has no effect."""
        if self._thread is not None:
            self._thread.release()
        # Pop the slots one by one: a second call, or a call after a failure, then releases only the remaining
        # slots.
        while self._held:
            self._held.pop().release()


def pool_key(environ: WSGIEnvironment) -> PoolKey:
    """Return the key for which a request counts at the moment."""
    admission: Admission | None = environ.get(ADMISSION)
    return admission.key if admission is not None else anonymous_key(client_address(environ))
