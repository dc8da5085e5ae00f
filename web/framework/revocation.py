"""End a response when its caller is revoked.

A stream ends with an error event in its own format. A call without a stream ends with an error response. The
upstream call is cancelled, because closing the generator cancels it. A download can only be aborted.
"""

import contextlib
import socket
from collections.abc import Callable, Generator
from contextlib import closing
from functools import partial
from typing import TypeVar

from flask import Response

from shared.identity.authentication.revocation_watcher import WatchedCall
from web.framework.admission import call_when_sent

# A download below this size ends within moments, whether or not its client reads, so it is not watched.
TAKEN_AT_ONCE_BYTES = 128 << 10
Step = TypeVar("Step")
# A function that watches the caller of a request and calls its argument on revocation
# (`revocation_watcher.py`).
Watch = Callable[[Callable[[], None]], WatchedCall]


def until_revoked(steps: Generator[Step], watch: Watch, wake: Callable[[], None]) -> Generator[Step]:
    """Yield the steps of a response until its caller is revoked.

    Then raise the error that a new request would get. On revocation, `wake` makes the next step due soon.
    Without `wake`, a revocation takes effect at the next step.
    """
    with watch(wake) as call, closing(steps):
        for step in steps:
            # Check before the step is sent, so that no byte leaves after the process has noticed the
            # revocation.
            if call.revocation is not None:
                raise call.revocation
            yield step


def abort_when_revoked(response: Response, watch: Watch, connection: socket.socket | None) -> Response:
    """Close the connection of a download if its caller or link is revoked before the whole content is sent.

    A response that the proxy sends (X-Accel-Redirect) has no content length here, and cannot be aborted.
    """
    # Do not watch a small download: the watch costs more than the download.
    if connection is not None and (response.content_length or 0) > TAKEN_AT_ONCE_BYTES:
        call = watch(partial(_abort, connection))
        call_when_sent(response, call.close)
    return response


def _abort(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # Call the plain socket's method: the method of a TLS socket would first send a close notification.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
