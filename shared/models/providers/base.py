"""The port to a provider: open a call, read events, hang up.

Events are the parsed JSON of the upstream's own dialect, errors within a stream among them; a single JSON document is
one event. Providers raise the errors of `errors` and nothing else.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, Self

from shared.models.catalog import Upstream
from shared.models.stream_loop import Pollable

Event = dict[str, Any]


class Cancellation(Protocol):
    """Tells that nobody waits any more; a `threading.Event` is one. Asked often: neither method may do I/O."""

    def is_set(self) -> bool:
        """Whether to hang up."""

    def wait(self, timeout: float | None = None, /) -> bool:
        """Sleep until it is set or the time is over; return whether it is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRequest:
    """One call: the body in the upstream's dialect, and the bounds. `deadline_at` is of the monotonic clock."""

    upstream: Upstream
    body: Event
    deadline_at: float
    first_byte_timeout_seconds: float
    call_id: str | None = None

    @property
    def is_streamed(self) -> bool:
        """Whether a stream is requested. A plain reply has only a deadline: it may send no byte before it is ready."""
        return bool(self.body.get("stream"))


class UpstreamStream(Protocol):
    """An answer under way. Leave the `with` block early to hang up without hearing what has come."""

    upstream: Upstream

    @property
    def received_done_marker(self) -> bool:
        """Whether the upstream has ended its stream with `[DONE]`, or answered with a whole document."""

    def __enter__(self) -> Self:
        """Begin to read."""

    def __exit__(self, *raised: object) -> None:
        """Let go of the connection: kept if the answer was read to its end, else closed."""

    def batches(self) -> Iterator[list[Event]]:
        """Give events as they arrive, those that arrived together in one list; ends where the upstream's stream ends.

        Whether that end was a good one only the events tell. Raises ProviderError, ProviderTimeout, CallCancelled,
        all with `may_have_cost`.
        """

    def __iter__(self) -> Iterator[Event]:
        """Give the events one by one."""

    def hang_up(self) -> None:
        """Have `batches` give what has come, and no more, and raise CallCancelled where that was not all."""

    @property
    def is_pollable(self) -> bool:
        """Whether a socket tells of all that is still to come, so that a loop may `read_available` it."""

    def polling(self) -> AbstractContextManager[Pollable]:
        """Allow `read_available` within the block, whenever the socket is readable; only while `is_pollable`."""

    def read_available(self) -> list[Event] | None:
        """Give the events that have come, without waiting; None when `batches` must read on. Raises ProviderError."""


class Provider(Protocol):
    """One configured provider; safe to share between threads."""

    def open(self, request: UpstreamRequest, *, cancelled: Cancellation) -> UpstreamStream:
        """Send the request and wait until the upstream begins to answer with success.

        Raises ProviderError, ProviderTimeout, ProviderOverloaded, UpstreamRefused, CallCancelled. Never repeats.
        """

    def close(self) -> None:
        """Close idle connections; calls under way go on."""
