"""The interface of providers: open a call, read the events of its response, end it early.

Events are the parsed JSON of the upstream's own dialect, including errors inside a stream. A response that is a single
JSON document is one event. Providers raise only the errors of the module `errors`.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, Self

from shared.models.catalog import Upstream
from shared.models.stream_loop import Pollable

Event = dict[str, Any]


class Cancellation(Protocol):
    """A flag that is set when a call is cancelled, for instance a `threading.Event`. Its methods must not do I/O."""

    def is_set(self) -> bool:
        """Return whether the call was cancelled."""

    def wait(self, timeout: float | None = None, /) -> bool:
        """Wait until the call is cancelled or `timeout` seconds have passed. Return whether the call was cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRequest:
    """One request to an upstream: the body in the upstream's dialect, and the timeouts.

    `deadline_at` is in the monotonic clock's seconds.
    """

    upstream: Upstream
    body: Event
    deadline_at: float
    first_byte_timeout_seconds: float
    call_id: str | None = None

    @property
    def is_streamed(self) -> bool:
        """Whether a stream is requested. If not, only the deadline applies: no byte may come before the whole reply."""
        return bool(self.body.get("stream"))


class UpstreamStream(Protocol):
    """A response under way. Leaving the `with` block early closes the connection and discards unread bytes."""

    upstream: Upstream

    @property
    def received_done_marker(self) -> bool:
        """Whether the upstream ended its stream with `[DONE]`, or responded with one document."""

    def __enter__(self) -> Self:
        """Start reading."""

    def __exit__(self, *raised: object) -> None:
        """Return the connection to the pool if the response was read to its end, else close the connection."""

    def batches(self) -> Iterator[list[Event]]:
        """Yield events until the upstream's stream ends. Each list has the events that arrived together.

        Only the events show whether the reply is complete. Raises ProviderError, ProviderTimeout or CallCancelled, each
        with `may_have_cost` set.
        """

    def __iter__(self) -> Iterator[Event]:
        """Yield the events one by one."""

    def hang_up(self) -> None:
        """Close the connection for new bytes.

        `batches` still yields the events that have arrived, then raises CallCancelled unless the reply is complete.
        """

    @property
    def is_pollable(self) -> bool:
        """Whether all unread data makes the socket readable, so that a loop may poll it and call `read_available`."""

    def polling(self) -> AbstractContextManager[Pollable]:
        """Allow calls of `read_available` within the block. The caller has checked `is_pollable`."""

    def read_available(self) -> list[Event] | None:
        """Return the events that have arrived, without waiting. None means: leave `polling` and continue `batches`.

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
