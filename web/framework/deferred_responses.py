"""Responses that wait for an event: without a thread if the server can defer them, else by blocking the thread.

A handler writes a generator. The generator yields None while there is nothing to send, and then the
`Response`. For a stream it goes on to yield frames, and None between them. An error before the response
becomes an error response, on a deferred response too. Hooks around responses (`web/app.py`) run once the
response exists.
"""

import math
import socket
import time
from collections.abc import Callable, Generator, Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

from flask import Flask, Response, current_app
from werkzeug.exceptions import ClientDisconnected

from shared.runtime.deferred_responses import THREAD_WAIT, DeferredResponse, WakeUp
from web.server.connections import has_hung_up

ResponseGenerator = Generator[Response | bytes | None]


class PendingResponse:
    """The wait of one request: the wake-up that ends the wait, and how long it may last."""

    def __init__(
        self,
        environ: WSGIEnvironment,
        *,
        idle_seconds: float,
        is_blocking: bool,
        deadline: float = math.inf,
    ) -> None:
        """Set when a step is due: after `idle_seconds` or at `deadline` (`time.monotonic()`), the earlier of the two.

        `is_blocking` is true if a step, or closing the generator, may wait for another server.
        """
        self.wake_up = WakeUp()
        self._idle_seconds = idle_seconds
        self.deadline = deadline
        self.is_shutting_down = False
        self.is_blocking = is_blocking
        # Only this project's server sets THREAD_WAIT. Under any other server, the thread blocks.
        self.can_defer = THREAD_WAIT in environ
        self.connection: socket.socket | None = environ.get("gunicorn.socket")
        self._thread_wait: Callable[[], float] | None = environ.get(THREAD_WAIT)

    def shut_down(self) -> None:
        """Make the response end cleanly, because the server is draining."""
        self.is_shutting_down = True

    @property
    def is_over(self) -> bool:
        """Whether the wait must end now: the deadline has passed or the server is draining."""
        return self.is_shutting_down or time.monotonic() >= self.deadline

    def idle_seconds(self) -> float:
        """Return the seconds until the next step is due. A wake-up makes the step due earlier."""
        return min(self._idle_seconds, max(0.0, self.deadline - time.monotonic()))

    def seconds(self) -> float:
        """Return how many seconds this step may wait before it yields None.

        If the response can be deferred, only the first step may wait, and only briefly: a short wait costs
        less than deferring.
        """
        if not self.can_defer:
            return self.idle_seconds()
        thread_wait, self._thread_wait = self._thread_wait, None
        return thread_wait() if thread_wait is not None else 0.0

    def leave_thread(self) -> None:
        """Forbid all further steps to wait: the threads that run them from now on serve all deferred responses."""
        self._thread_wait = None


class ResponsePlaceholder(Response):
    """Takes the place of a response that does not exist yet, and is closed when the real one has been sent."""

    def __init__(self, steps: ResponseGenerator, pending: PendingResponse) -> None:
        super().__init__(iter(()))
        self._steps = steps
        self._waiting = pending

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Return the deferred response, which calls `start_response` once the real response exists."""
        app = current_app._get_current_object()  # type: ignore[attr-defined]  # noqa: SLF001 (Flask's documented way)
        answer = _defer(self._pieces(app, environ, start_response), self._waiting)
        answer.call_on_close(self.close)
        return answer

    def _pieces(
        self, app: Flask, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Generator[bytes]:
        """Yield the pieces of the real response. If the generator fails, yield an error response instead."""
        has_begun = False
        try:
            for step in self._steps:
                if isinstance(step, Response):
                    has_begun = True
                    # `finalize_request` runs the `after_request` hooks, which Flask has run for the
                    # placeholder only.
                    yield from app.finalize_request(step)(environ, start_response)
                else:
                    yield step or b""
            if not has_begun:
                raise RuntimeError("the generator ended without a response")
        # Flask's error handling is over when this code runs, so call the error handlers here.
        except Exception as error:
            if has_begun:
                raise
            answer = app.make_response(app.handle_user_exception(error))
            yield from app.finalize_request(answer)(environ, start_response)
        finally:
            self._steps.close()


def is_deferred(response: Response) -> bool:
    """Return whether a response will be sent without the thread that created it."""
    return isinstance(response, ResponsePlaceholder) or isinstance(response.response, DeferredResponse)


def respond_when_ready(steps: ResponseGenerator, pending: PendingResponse) -> Response:
    """Return the response that the generator yields, or defer it.

    Raises the errors of the generator, and ClientDisconnected.
    """
    response = _find_response(steps, pending)
    if response is None:
        return ResponsePlaceholder(steps, pending)
    steps.close()
    return response


def stream_when_ready(steps: ResponseGenerator, pending: PendingResponse) -> Response:
    """Return the response that the generator yields, with the generator's frames as body.

    Raises the errors of the generator, and ClientDisconnected.
    """
    response = _find_response(steps, pending)
    if response is None:
        return ResponsePlaceholder(steps, pending)
    frames = _frames(steps)
    response.response = _defer(frames, pending) if pending.can_defer else filter(None, frames)
    response.call_on_close(frames.close)
    # Flask must pass the body on unchanged, because the server recognizes it by its type DeferredResponse.
    response.direct_passthrough = pending.can_defer
    return response


def event_stream() -> Response:
    """Create the response of a stream of server-sent events. The handler yields its frames afterwards."""
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    # Use an iterator: Flask would compute a Content-Length for a sequence.
    return Response(iter(()), content_type="text/event-stream; charset=utf-8", headers=headers)


def _find_response(steps: ResponseGenerator, pending: PendingResponse) -> Response | None:
    """Run the generator up to its response. Return None if the response should be deferred."""
    for step in steps:
        if isinstance(step, Response):
            return step
        if pending.can_defer:
            return None
        # Nothing is written before the response, so no failed write shows that the client is gone. Check the
        # socket.
        if pending.connection is not None and has_hung_up(pending.connection):
            steps.close()
            raise ClientDisconnected
    raise RuntimeError("the generator ended without a response")


def _defer(pieces: Generator[bytes], pending: PendingResponse) -> DeferredResponse:
    pending.leave_thread()
    return DeferredResponse(
        pieces,
        pending.wake_up,
        idle_seconds=pending.idle_seconds,
        is_blocking=pending.is_blocking,
        shut_down=pending.shut_down,
    )


def _frames(steps: ResponseGenerator) -> Generator[bytes]:
    try:
        for step in steps:
            yield step if isinstance(step, bytes) else b""
    finally:
        steps.close()
