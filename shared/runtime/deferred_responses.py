"""Responses that occupy no thread while they wait. The module defines the protocol between application and server.

The application returns an iterable of pieces, as in WSGI. An empty piece means that no data is ready: the server
asks again after a wake-up or after `idle_seconds`. A server that supports this sets `THREAD_WAIT` in the environ;
other servers do not. The iterable runs in its own context (log fields included), on any thread, one thread at a
time.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from contextvars import copy_context

THREAD_WAIT = "quartermaster.thread_wait"
"""Key in a request's environ: a callable that returns for how many seconds its thread may wait."""


def _nothing() -> None: ...


class WakeUp:
    """Notifies the sender of a response that more of it may be ready; any thread may notify."""

    __slots__ = ("_listener",)

    def __init__(self) -> None:
        self._listener: Callable[[], None] | None = None

    def wake_through(self, listener: Callable[[], None]) -> None:
        """Call `listener` at every later notification. The listener must return immediately."""
        self._listener = listener

    def notify(self) -> None:
        """Call the listener, because more data may be ready to send."""
        if self._listener is not None:
            self._listener()


class DeferredResponse(Iterator[bytes]):
    """The rest of a response. The sender closes it after its end, or when the client is gone."""

    def __init__(
        self,
        pieces: Generator[bytes],
        wake_up: WakeUp,
        *,
        idle_seconds: Callable[[], float],
        is_blocking: bool,
        shut_down: Callable[[], None] = _nothing,
    ) -> None:
        """Create a response. Its next piece is due after `idle_seconds()` at the latest.

        `is_blocking` is true if producing a piece, or closing early, may wait for another server; such a response
        needs a thread of its own. All other responses share one sending thread. After `shut_down` the pieces end
        soon.
        """
        self.wake_up = wake_up
        self._idle_seconds = idle_seconds
        self._shut_down = shut_down
        self.is_blocking = is_blocking
        self._pieces = pieces
        self._on_close = ExitStack()
        self._context = copy_context()

    @property
    def idle_seconds(self) -> float:
        """Return the seconds until the next piece is due; a wake-up makes it due earlier."""
        return self._idle_seconds()

    def shut_down(self) -> None:
        """Shut the response down cleanly, because its server drains."""
        self._shut_down()
        self.wake_up.notify()

    def __next__(self) -> bytes:
        """Return the next piece, empty if none is ready."""
        return self._context.run(next, self._pieces)

    def call_on_close(self, act: Callable[[], None]) -> None:
        """Register a callback for `close`; the last one registered runs first."""
        self._on_close.callback(act)

    def close(self) -> None:
        """Close the iterable and run the callbacks."""
        # The callbacks run even if closing the iterable raises.
        with self._on_close:
            self._context.run(self._pieces.close)
