"""HTTP responses of model calls: one JSON document, or a stream of the frames that workers send.

An error before the first frame becomes an error response. A stream begins with its first frame, or with a
comment if the model is silent for a while. A later error ends the stream with an error event. While there is
nothing to send, no thread is used (`web/framework/deferred_responses.py`).
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

# After this many seconds without a frame, send a comment, so that neither client nor proxy closes the
# connection.
COMMENT_AFTER_SECONDS = 10.0


class Interrupted(ServiceUnavailable):
    """This server stopped before the call had ended. The call was cancelled, and its usage so far is charged."""

    is_final = True


def document_response(invoker: Invoker, inbox: Inbox, watch: Watch, environ: WSGIEnvironment) -> Response:
    """Return the complete document when it has arrived.

    Raises the errors of `replies`, ClientDisconnected if the client is gone, and the error of a revocation if
    the caller is revoked.
    """
    return rendered_response(invoker, inbox, watch, environ, _json)


def rendered_response(
    invoker: Invoker,
    inbox: Inbox,
    watch: Watch,
    environ: WSGIEnvironment,
    render: Callable[[bytes], Response],
) -> Response:
    """Return the result of `render` for the complete document, when it has arrived. `render` must not block."""
    pending = _pending_response(inbox, environ)
    return respond_when_ready(_document(_replies(invoker, inbox, watch, pending), render), pending)


def streamed_response(
    invoker: Invoker, inbox: Inbox, dialect: Dialect, watch: Watch, environ: WSGIEnvironment
) -> Response:
    """Return a stream when the first frame has arrived or the first comment is due."""
    pending = _pending_response(inbox, environ)
    return stream_when_ready(_events(_replies(invoker, inbox, watch, pending), dialect), pending)


def _replies(
    invoker: Invoker, inbox: Inbox, watch: Watch, pending: PendingResponse
) -> Generator[Reply | None]:
    replies = reply_timeouts.replies(invoker, inbox, pending.seconds)
    return _until_shut_down(until_revoked(replies, watch, pending.wake_up.notify), pending)


def _until_shut_down(replies: Generator[Reply | None], pending: PendingResponse) -> Generator[Reply | None]:
    """Yield replies until the server shuts down.

    When the generator is closed before the last reply, the call is cancelled.
    """
    with closing(replies):
        for reply in replies:
            # Stop only while there is no reply: a reply that has arrived is still sent.
            if reply is None and pending.is_shutting_down:
                raise Interrupted
            yield reply


def _pending_response(inbox: Inbox, environ: WSGIEnvironment) -> PendingResponse:
    # A step reads only replies that have arrived, so it does not block: other threads ask the servers about a
    # silent call.
    pending = PendingResponse(environ, idle_seconds=reply_timeouts.PING_SECONDS, is_blocking=False)
    inbox.attach(pending.wake_up)
    return pending


def _json(document: bytes) -> Response:
    return Response(document, content_type="application/json")


def _document(replies: Generator[Reply | None], render: Callable[[bytes], Response]) -> ResponseGenerator:
    with closing(replies):
        for reply in replies:
            if reply is None:
                yield None
            # Only the last reply has the document. The other replies report that the worker is alive.
            elif reply.kind is ReplyKind.END:
                yield render(reply.data)
                return
    raise RuntimeError("the call ended without a final reply")


def _events(replies: Generator[Reply | None], dialect: Dialect) -> ResponseGenerator:
    sent, sent_at, has_begun = 0, time.monotonic(), False
    try:
        for reply in replies:
            data = _data(reply, sent_at, dialect)
            # The first comment starts the response too, because proxies close a request that is silent for
            # long.
            if not has_begun and (data or reply is not None):
                has_begun = True
                yield event_stream()
            if data:
                sent, sent_at = sent + 1, time.monotonic()
                yield data
            if reply is None:
                yield None
    except DomainError as error:
        # No byte has been sent yet, so the error can still become a response with its own status.
        if not has_begun:
            raise
        log.warning("stream.failed", code=error.code)
        yield from _error_frames(error, dialect, sent)
    finally:
        replies.close()  # Closing cancels the call, unless the call has ended.


def _data(reply: Reply | None, sent_at: float, dialect: Dialect) -> bytes:
    if reply is not None:
        return reply.data
    return keepalive_comment(dialect) if time.monotonic() - sent_at > COMMENT_AFTER_SECONDS else b""


def _error_frames(error: DomainError, dialect: Dialect, sent: int) -> Iterator[bytes]:
    failure = Failure(code=openai_code(error.code), message=error.detail)
    if dialect is Dialect.CHAT:
        content = chat_error(failure)
    elif dialect is Dialect.MESSAGES:
        content = messages_error(failure)
    else:
        # Use a number larger than all before it: one reply may carry several events, but never a million.
        content = responses_error(failure, sequence_number=1_000_000 + sent)
    yield frame_writer(dialect)([Delta(content)])
    # Send the terminator after an error too, because clients wait for it.
    yield end_of_stream(dialect)
