"""Answer a model call: the one JSON document, or the events as they come.

The front reads nothing of what it passes on: workers send ready frames. Until the first frame a failure is an answer
with its own status; afterwards, or after a while of waiting, the stream has begun and ends with an error event.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from wsgiref.types import WSGIEnvironment

from flask import Response
from werkzeug.exceptions import ClientDisconnected

from shared.errors import DomainError
from shared.models.awaiting import replies
from shared.models.dialects import Dialect
from shared.models.dialects.failures import Failure, chat_error, responses_error
from shared.models.dialects.frames import DONE, chat_frame, event_frame
from shared.models.invocations import Invoker
from shared.replies import Inbox, Reply, ReplyKind
from shared.telemetry import get_logger

log = get_logger(__name__)

COMMENT_AFTER_SECONDS = 10.0
_COMMENT = b": still working\n\n"
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


def whole_answer(invoker: Invoker, inbox: Inbox, environ: WSGIEnvironment) -> Response:
    """Wait for the document. Raises what `replies` raises, and ClientDisconnected once nobody waits for it."""
    with closing(replies(invoker, inbox)) as coming:
        for reply in coming:
            if reply is None and has_hung_up(environ.get("gunicorn.socket")):
                raise ClientDisconnected
            if reply is not None and reply.kind is ReplyKind.END:
                return Response(reply.data, content_type="application/json")
    raise RuntimeError("a call ended without its end")


def streamed_answer(invoker: Invoker, inbox: Inbox, dialect: Dialect) -> Response:
    """Wait for the first frame, or for so long that the client should hear something, then stream."""
    coming = replies(invoker, inbox)
    first = _first(coming)
    frames = _frames(first, coming, dialect)
    return Response(frames, content_type="text/event-stream; charset=utf-8", headers=_HEADERS)


def has_hung_up(connection: socket.socket | None) -> bool:
    """Tell whether the client has closed its side, which an answer that writes nothing until its end cannot notice."""
    if connection is None:
        return False
    try:
        # The plain socket's method: that of a TLS socket takes no flags.
        return not socket.socket.recv(connection, 1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _first(coming: Generator[Reply | None]) -> Reply | None:
    began = time.monotonic()
    for reply in coming:
        if reply is not None or time.monotonic() - began > COMMENT_AFTER_SECONDS:
            return reply
    return None


def _frames(first: Reply | None, coming: Generator[Reply | None], dialect: Dialect) -> Iterator[bytes]:
    sent = 0
    try:
        yield first.data if first is not None else _COMMENT
        for reply in coming:
            if reply is None:
                yield _COMMENT
            elif reply.data:
                sent += 1
                yield reply.data
    except DomainError as error:
        log.warning("stream.failed", code=error.code)
        yield from _error_frames(error, dialect, sent)
    finally:
        coming.close()  # which cancels the call unless it is over


def _error_frames(error: DomainError, dialect: Dialect, sent: int) -> Iterator[bytes]:
    failure = Failure(code=error.code, message=error.detail)
    if dialect is Dialect.CHAT:
        yield chat_frame(chat_error(failure))
    else:
        # Larger than the number of any event before it: a reply may have carried several, but never so many.
        yield event_frame(responses_error(failure, sequence_number=1_000_000 + sent))
    yield DONE
