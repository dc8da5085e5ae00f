"""The slots that a request holds of the pools it is counted in, and for whom it is counted at the moment."""

from wsgiref.types import WSGIEnvironment

from shared.fairness.admission import Pool, PoolKey, Slot, anonymous_key
from web.http.client_address import client_address

ADMISSION = "quartermaster.admission"
"""Key in a request's environ: its `Admission`, where it has one."""


class Admission:
    """The slots that one request holds; used by one thread at a time."""

    def __init__(self, key: PoolKey, thread: Slot | None = None, *, waited_seconds: float = 0.0) -> None:
        """Begin with the slot of the request's thread; one that asks how the service is has none."""
        self.key = key
        self.waited_seconds = waited_seconds
        self.is_responding = False
        self._thread = thread
        self._held: list[Slot] = []

    @property
    def has_thread(self) -> bool:
        """Whether a slot stands for the request's thread."""
        return self._thread is not None

    def move(self, key: PoolKey) -> None:
        """Count the request for another key from now on. Raises ConcurrencyLimited, PoolExhausted."""
        if key != self.key and self._thread is not None:
            self._thread.move(key, waited_seconds=self.waited_seconds)
        self.key = key

    def hold(self, pool: Pool) -> None:
        """Hold a slot of another pool too, until the answer has been sent. Raises ConcurrencyLimited, PoolExhausted."""
        self._held.append(pool.acquire(self.key, waited_seconds=self.waited_seconds))

    def leave_thread(self) -> None:
        """Give back the thread's slot alone: what is left to be done holds none."""
        if self._thread is not None:
            self._thread.release()

    def end(self) -> None:
        """Give everything back; again does nothing."""
        if self._thread is not None:
            self._thread.release()
        while self._held:
            self._held.pop().release()


def pool_key(environ: WSGIEnvironment) -> PoolKey:
    """Give the key that a request is counted for at this moment."""
    admission: Admission | None = environ.get(ADMISSION)
    return admission.key if admission is not None else anonymous_key(client_address(environ))
