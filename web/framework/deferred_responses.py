"""Answer requests that wait: without a thread under a server that can hold answers, else by blocking.

A handler writes the steps of its answer: nothing yet (None), then the `Response`, and for a stream its frames and more
Nones. Until the response an error is an answer with its own status, wherever it is raised; what is done around every
response (`web/app.py`) is done when there is one.
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
    """One request's wait: the bell that ends it, and how long it may last."""

    def __init__(
        self,
        environ: WSGIEnvironment,
        *,
        idle_seconds: float,
        is_blocking: bool,
        deadline: float = math.inf,
    ) -> None:
        """Have a step taken at the latest after `idle_seconds`, and at the `deadline` of `time.monotonic`.

        `is_blocking` says that steps, or their end, may wait for a server.
        """
        self.wake_up = WakeUp()
        self._idle_seconds = idle_seconds
        self.deadline = deadline
        self.is_shutting_down = False
        self.is_blocking = is_blocking
        self.can_defer = THREAD_WAIT in environ
        self.connection: socket.socket | None = environ.get("gunicorn.socket")
        self._thread_wait: Callable[[], float] | None = environ.get(THREAD_WAIT)

    def shut_down(self) -> None:
        """Have the answer end in good order, because the server stops."""
        self.is_shutting_down = True

    @property
    def is_over(self) -> bool:
        """Whether there is no more time to wait."""
        return self.is_shutting_down or time.monotonic() >= self.deadline

    def idle_seconds(self) -> float:
        """Tell how long there is no need of a step unless the wake-up rings."""
        return min(self._idle_seconds, max(0.0, self.deadline - time.monotonic()))

    def seconds(self) -> float:
        """Tell how long the step may wait at this moment, before it says that there is nothing yet.

        Where the answer can be held, the request's thread waits a moment once: less is not worth handing it over.
        """
        if not self.can_defer:
            return self.idle_seconds()
        thread_wait, self._thread_wait = self._thread_wait, None
        return thread_wait() if thread_wait is not None else 0.0

    def leave_thread(self) -> None:
        """Have no step wait from here on: the threads that take it serve all answers that are held."""
        self._thread_wait = None


class ResponsePlaceholder(Response):
    """Stands for a response that is not there yet; closed when that has been sent."""

    def __init__(self, steps: ResponseGenerator, pending: PendingResponse) -> None:
        super().__init__(iter(()))
        self._steps = steps
        self._waiting = pending

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Give the server the answer to hold, which starts the response when there is one."""
        app = current_app._get_current_object()  # type: ignore[attr-defined]  # noqa: SLF001 (Flask's documented way)
        answer = _defer(self._pieces(app, environ, start_response), self._waiting)
        answer.call_on_close(self.close)
        return answer

    def _pieces(
        self, app: Flask, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Generator[bytes]:
        """Give the pieces of the answer, or of the error in its place."""
        has_begun = False
        try:
            for step in self._steps:
                if isinstance(step, Response):
                    has_begun = True
                    yield from app.finalize_request(step)(environ, start_response)
                else:
                    yield step or b""
            if not has_begun:
                raise RuntimeError("an answer ended without a response")
        except Exception as error:
            if has_begun:
                raise
            answer = app.make_response(app.handle_user_exception(error))
            yield from app.finalize_request(answer)(environ, start_response)
        finally:
            self._steps.close()


def is_deferred(response: Response) -> bool:
    """Tell whether a response will leave the thread that made it."""
    return isinstance(response, ResponsePlaceholder) or isinstance(response.response, DeferredResponse)


def respond_when_ready(steps: ResponseGenerator, pending: PendingResponse) -> Response:
    """Answer with the response that the steps come to. Raises what they raise, ClientDisconnected."""
    response = _find_response(steps, pending)
    if response is None:
        return ResponsePlaceholder(steps, pending)
    steps.close()
    return response


def stream_when_ready(steps: ResponseGenerator, pending: PendingResponse) -> Response:
    """Answer with the response that the steps come to, and then with their frames. Raises what they raise."""
    response = _find_response(steps, pending)
    if response is None:
        return ResponsePlaceholder(steps, pending)
    frames = _frames(steps)
    response.response = _defer(frames, pending) if pending.can_defer else filter(None, frames)
    response.call_on_close(frames.close)
    response.direct_passthrough = pending.can_defer  # the server is to see it as it is
    return response


def event_stream() -> Response:
    """Make the response of a stream of server-sent events, which its frames follow."""
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    # An iterator, as that of a sequence would be given a length.
    return Response(iter(()), content_type="text/event-stream; charset=utf-8", headers=headers)


def _find_response(steps: ResponseGenerator, pending: PendingResponse) -> Response | None:
    """Take steps up to the response; None when the answer should be held."""
    for step in steps:
        if isinstance(step, Response):
            return step
        if pending.can_defer:
            return None
        # Nothing is written before the response, so a write cannot find out that the client is gone.
        if pending.connection is not None and has_hung_up(pending.connection):
            steps.close()
            raise ClientDisconnected
    raise RuntimeError("an answer ended without a response")


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
