"""Answers that hold no thread while they wait: the protocol between the application and its server.

The application answers with an iterable of pieces, as in WSGI; an empty piece means "nothing yet: go on once the bell
has rung, or after a while". A server that knows this puts under `HOLD` in the environ how long a thread may wait;
others never see it. The iterable goes on in its own context, log fields included, on any thread, one at a time.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from contextvars import copy_context

HOLD = "quartermaster.hold"
"""Key in a request's environ: a callable that tells for how many seconds its thread may wait."""


def _nothing() -> None: ...


class WakeUp:
    """Tells the sender of an answer that there may be more of it; rung from any thread."""

    __slots__ = ("_listener",)

    def __init__(self) -> None:
        self._listener: Callable[[], None] | None = None

    def wake_through(self, listener: Callable[[], None]) -> None:
        """Call this at every ring from now on; it must return at once."""
        self._listener = listener

    def ring(self) -> None:
        """Say that there may be more."""
        if self._listener is not None:
            self._listener()


class DeferredResponse(Iterator[bytes]):
    """The rest of an answer. Close it once it was read to its end, or nobody reads it any more."""

    def __init__(
        self,
        pieces: Generator[bytes],
        bell: WakeUp,
        *,
        idle_seconds: Callable[[], float],
        is_blocking: bool,
        shut_down: Callable[[], None] = _nothing,
    ) -> None:
        """Ask for the next piece at the latest after `idle_seconds()`.

        An answer `is_blocking` if its pieces, or its end before the last of them, may wait for a server: else one
        thread, which sends the answers of all clients, asks and closes it. After `shut_down` they soon come to an end.
        """
        self.bell = bell
        self._idle_seconds = idle_seconds
        self._wind_up = shut_down
        self.is_blocking = is_blocking
        self._pieces = pieces
        self._on_close = ExitStack()
        self._context = copy_context()

    @property
    def idle_seconds(self) -> float:
        """How long from now the answer may be left alone."""
        return self._idle_seconds()

    def shut_down(self) -> None:
        """Have the answer end in good order, because its server will."""
        self._wind_up()
        self.bell.ring()

    def __next__(self) -> bytes:
        """Give the next piece, or an empty one if there is nothing yet."""
        return self._context.run(next, self._pieces)

    def call_on_close(self, act: Callable[[], None]) -> None:
        """Call this, too, when the answer is closed, before what was said earlier."""
        self._on_close.callback(act)

    def close(self) -> None:
        """Give up what is held for the answer."""
        with self._on_close:
            self._context.run(self._pieces.close)
