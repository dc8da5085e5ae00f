"""The port of a tracer and its spans, and the header that carries a trace (W3C Trace Context)."""

from __future__ import annotations

from typing import Literal, Protocol, Self

HEADER = "traceparent"
SpanKind = Literal["server", "consumer", "client"]
Attribute = str | int


class Span(Protocol):
    """A traced piece of work. It is its thread's current span from `enter` to `leave`."""

    def enter(self) -> None:
        """Make the span the parent of spans that start, and messages that are sent, from now on."""

    def leave(self) -> None:
        """Restore the previous span. Call this method in the thread that called `enter`."""

    def set(self, name: str, value: Attribute) -> None:
        """Set an attribute."""

    def fail(self, code: str) -> None:
        """Mark the span as failed with an error code, never with an error's text."""

    def end(self) -> None:
        """Send the span to the collector. A second call does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None: ...


class Tracer(Protocol):
    """Creates spans; `opentelemetry_export` implements it."""

    def span(self, name: str, kind: SpanKind, parent: str | None, attributes: dict[str, Attribute]) -> Span:
        """Start a span below `parent`, or below the current span if `parent` is None."""

    def traceparent(self) -> str | None:
        """Return the current context in the format of W3C Trace Context."""


class NoSpan:
    """The span that is used while tracing is off."""

    __slots__ = ()

    def enter(self) -> None:
        """Do nothing."""

    def leave(self) -> None:
        """Do nothing."""

    def set(self, name: str, value: Attribute) -> None:
        """Do nothing."""

    def fail(self, code: str) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


NO_SPAN = NoSpan()
