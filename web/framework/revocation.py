"""End what is being answered when its caller is revoked.

A stream ends with its dialect's error event, a plain call with the error as its answer; what was begun upstream is
cancelled, because the code that gives the steps closes them. A download can only be broken off.
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

TAKEN_AT_ONCE_BYTES = 128 << 10
"""A download of so much ends within moments, whether or not its client reads."""
Step = TypeVar("Step")
Watch = Callable[[Callable[[], None]], WatchedCall]
"""Watches the caller of a request, given what to call when they are revoked (`revocation_watcher.py`)."""


def until_revoked(steps: Generator[Step], watch: Watch, wake: Callable[[], None]) -> Generator[Step]:
    """Give the steps of an answer until its caller is revoked; then raise what a new request would be answered.

    `wake` has the next step taken soon; without it the revocation is noticed at the next step.
    """
    with watch(wake) as call, closing(steps):
        for step in steps:
            if call.revocation is not None:
                raise call.revocation
            yield step


def break_off_when_revoked(response: Response, watch: Watch, connection: socket.socket | None) -> Response:
    """Close the connection of a download whose caller or link is revoked before it has been sent.

    What a front proxy sends (X-Accel-Redirect) has no length here and is out of reach.
    """
    if connection is not None and (response.content_length or 0) > TAKEN_AT_ONCE_BYTES:
        call = watch(partial(_break_off, connection))
        call_when_sent(response, call.close)
    return response


def _break_off(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # The plain socket's method: that of a TLS socket would say goodbye first.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
