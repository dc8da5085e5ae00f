"""What a span is to those who make one (`tracing`), and how a trace travels: in a header named as W3C names it."""

from __future__ import annotations

from typing import Literal, Protocol, Self

HEADER = "traceparent"
SpanKind = Literal["server", "consumer", "client"]
Attribute = str | int


class Span(Protocol):
    """A piece of work that is traced. It is the present one, of this thread, from `enter` to `leave`."""

    def enter(self) -> None:
        """Let spans that begin from now on, and messages that are sent, belong to it."""

    def leave(self) -> None:
        """Restore what was present before; from the thread that entered."""

    def set(self, name: str, value: Attribute) -> None:
        """Note something."""

    def fail(self, code: str) -> None:
        """Note that it failed, and how; never the text of an error."""

    def end(self) -> None:
        """Send it to the collector; again does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None: ...


class Tracer(Protocol):
    """What makes spans (`opentelemetry_export`)."""

    def span(self, name: str, kind: SpanKind, parent: str | None, attributes: dict[str, Attribute]) -> Span:
        """Begin a span, below `parent` if that is given, else below the present one."""

    def traceparent(self) -> str | None:
        """Write the present context as W3C Trace Context does."""


class NoSpan:
    """Stands for a span where nothing is traced."""

    __slots__ = ()

    def enter(self) -> None:
        """Do nothing."""

    def leave(self) -> None:
        """Do nothing."""

    def set(self, name: str, value: Attribute) -> None:
        """Note nothing."""

    def fail(self, code: str) -> None:
        """Note nothing."""

    def end(self) -> None:
        """Send nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


NO_SPAN = NoSpan()
