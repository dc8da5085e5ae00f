"""Answer a model call: the one JSON document, or the events as they come, in frames that workers have made.

Until the first frame a failure is an answer with its own status; afterwards, or after a while of pending, the stream
has begun and ends with an error event. While nothing comes no thread is held (`web/framework/deferred_responses.py`).
"""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from wsgiref.types import WSGIEnvironment

from flask import Response

from shared.errors import DomainError, ServiceUnavailable
from shared.messaging.replies import Inbox, Reply, ReplyKind
from shared.models import reply_timeouts
from shared.models.dialects import Delta, Dialect, end_of_stream, frame_writer, keepalive_comment
from shared.models.dialects.failures import Failure, chat_error, messages_error, responses_error
from shared.models.invocations import Invoker
from shared.observability.telemetry import get_logger
from web.error_responses.openai_errors import openai_code
from web.framework.deferred_responses import (
    PendingResponse,
    ResponseGenerator,
    event_stream,
    respond_when_ready,
    stream_when_ready,
)
from web.framework.revocation import Watch, until_revoked

log = get_logger(__name__)

COMMENT_AFTER_SECONDS = 10.0
"""After so long without a frame a sign of life is sent, so that neither client nor proxy gives up."""


class Interrupted(ServiceUnavailable):
    """This server stops before the call has ended; it was cancelled, and what was used of it is charged."""

    is_final = True


def document_response(invoker: Invoker, inbox: Inbox, watch: Watch, environ: WSGIEnvironment) -> Response:
    """Wait for the document.

    Raises what `replies` raises, ClientDisconnected once nobody waits for it, and why a caller was revoked.
    """
    return rendered_response(invoker, inbox, watch, environ, _json)


def rendered_response(
    invoker: Invoker,
    inbox: Inbox,
    watch: Watch,
    environ: WSGIEnvironment,
    show: Callable[[bytes], Response],
) -> Response:
    """Wait for the document, and answer with what `show` makes of it, which must wait for nothing."""
    pending = _wait(inbox, environ)
    return respond_when_ready(_document(_coming(invoker, inbox, watch, pending), show), pending)


def streamed_response(
    invoker: Invoker, inbox: Inbox, dialect: Dialect, watch: Watch, environ: WSGIEnvironment
) -> Response:
    """Wait for the first frame, or for so long that the client should hear something, then stream."""
    pending = _wait(inbox, environ)
    return stream_when_ready(_events(_coming(invoker, inbox, watch, pending), dialect), pending)


def _coming(
    invoker: Invoker, inbox: Inbox, watch: Watch, pending: PendingResponse
) -> Generator[Reply | None]:
    coming = reply_timeouts.replies(invoker, inbox, pending.seconds)
    return _until_wound_up(until_revoked(coming, watch, pending.wake_up.notify), pending)


def _until_wound_up(coming: Generator[Reply | None], pending: PendingResponse) -> Generator[Reply | None]:
    """Give the replies that are there before the server stops; closing the others cancels the call."""
    with closing(coming):
        for reply in coming:
            if reply is None and pending.is_shutting_down:
                raise Interrupted
            yield reply


def _wait(inbox: Inbox, environ: WSGIEnvironment) -> PendingResponse:
    # ResponseGenerator read what was delivered; the servers that tell of a silent call are asked by other threads.
    pending = PendingResponse(environ, idle_seconds=reply_timeouts.PING_SECONDS, is_blocking=False)
    inbox.attach(pending.wake_up)
    return pending


def _json(document: bytes) -> Response:
    return Response(document, content_type="application/json")


def _document(coming: Generator[Reply | None], show: Callable[[bytes], Response]) -> ResponseGenerator:
    with closing(coming):
        for reply in coming:
            if reply is None:
                yield None
            elif reply.kind is ReplyKind.END:
                yield show(reply.data)
                return
    raise RuntimeError("a call ended without its end")


def _events(coming: Generator[Reply | None], dialect: Dialect) -> ResponseGenerator:
    sent, said_at, has_begun = 0, time.monotonic(), False
    try:
        for reply in coming:
            data = _data(reply, said_at, dialect)
            if not has_begun and (data or reply is not None):
                has_begun = True
                yield event_stream()
            if data:
                sent, said_at = sent + 1, time.monotonic()
                yield data
            if reply is None:
                yield None
    except DomainError as error:
        if not has_begun:
            raise
        log.warning("stream.failed", code=error.code)
        yield from _error_frames(error, dialect, sent)
    finally:
        coming.close()  # which cancels the call unless it is over


def _data(reply: Reply | None, said_at: float, dialect: Dialect) -> bytes:
    if reply is not None:
        return reply.data
    return keepalive_comment(dialect) if time.monotonic() - said_at > COMMENT_AFTER_SECONDS else b""


def _error_frames(error: DomainError, dialect: Dialect, sent: int) -> Iterator[bytes]:
    failure = Failure(code=openai_code(error.code), message=error.detail)
    if dialect is Dialect.CHAT:
        content = chat_error(failure)
    elif dialect is Dialect.MESSAGES:
        content = messages_error(failure)
    else:
        # Larger than the number of any event before it: a reply may have carried several, but never so many.
        content = responses_error(failure, sequence_number=1_000_000 + sent)
    yield frame_writer(dialect)([Delta(content)])
    yield end_of_stream(dialect)
