"""The port to a provider: open a call, read its events, hang up.

Events are the parsed JSON of the upstream's own dialect, including errors inside a stream. A single JSON document is
one event. Providers raise only the errors of `errors`.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, Self

from shared.models.catalog import Upstream
from shared.models.stream_loop import Pollable

Event = dict[str, Any]


class Cancellation(Protocol):
    """Whether a call was cancelled; a `threading.Event` is one. Polled often, so neither method may do I/O."""

    def is_set(self) -> bool:
        """Return whether the call was cancelled."""

    def wait(self, timeout: float | None = None, /) -> bool:
        """Wait until the call is cancelled or `timeout` seconds have passed. Return whether it was cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRequest:
    """One call: its body in the upstream's dialect, and its timeouts.

    `deadline_at` is in the monotonic clock's seconds.
    """

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
    """A response under way. Leave the `with` block early to hang up without reading what has arrived."""

    upstream: Upstream

    @property
    def received_done_marker(self) -> bool:
        """Whether the upstream ended its stream with `[DONE]`, or replied with one document."""

    def __enter__(self) -> Self:
        """Start reading."""

    def __exit__(self, *raised: object) -> None:
        """Release the connection: to the pool if the response was read to its end, else closed."""

    def batches(self) -> Iterator[list[Event]]:
        """Yield events as they arrive, in lists of those that arrived together, until the upstream's stream ends.

        The events alone show whether the reply was complete. Raises ProviderError, ProviderTimeout, CallCancelled, all
        with `may_have_cost`.
        """

    def __iter__(self) -> Iterator[Event]:
        """Yield the events one by one."""

    def hang_up(self) -> None:
        """Close the connection.

        `batches` yields what has arrived, then raises CallCancelled unless that was the whole reply.
        """

    @property
    def is_pollable(self) -> bool:
        """Whether the socket's readiness covers all remaining data, so that a loop may use `read_available`."""

    def polling(self) -> AbstractContextManager[Pollable]:
        """Allow `read_available` within the block, whenever the socket is readable; only while `is_pollable`."""

    def read_available(self) -> list[Event] | None:
        """Return the events that have arrived, without waiting; None if `batches` must continue.

        Raises ProviderError.
        """


class Provider(Protocol):
    """One configured provider; safe to share between threads."""

    def open(self, request: UpstreamRequest, *, cancelled: Cancellation) -> UpstreamStream:
        """Send the request, and wait for the head of a successful response.

        Raises ProviderError, ProviderTimeout, ProviderOverloaded, UpstreamRefused, CallCancelled. Never retries.
        """

    def close(self) -> None:
        """Close idle connections. Calls under way continue."""
