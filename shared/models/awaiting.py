"""Wait for the replies of a call, with a limit on every silence.

A call that no worker begins is given back; one whose worker falls silent, or whose replies are lost, ends with an
error and is settled by what its worker did or, if that died, by estimate. Whoever stops waiting cancels the call.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterator
from typing import Any

import redis

from shared.errors import DomainError, Kind
from shared.models.invocations import Invoker, ModelsOverloaded, give_up
from shared.models.providers.errors import UpstreamRefused
from shared.replies import Inbox, Reply, ReplyKind
from shared.telemetry import get_logger

log = get_logger(__name__)

PING_SECONDS = 2.0
QUEUE_SECONDS = 60.0
SILENCE_SECONDS = 30.0
_REFUSALS = {413: Kind.TOO_LARGE, 422: Kind.INVALID}


class CallLost(DomainError):
    """The reply was lost on its way; the call may have been charged, and is not repeated."""

    code = "provider_error"
    kind = Kind.UPSTREAM_FAILED
    is_final = True


class CallFailed(DomainError):
    """The call failed at the worker, which says how."""

    def __init__(self, document: dict[str, Any]) -> None:
        """Take what `describe_failure` wrote."""
        super().__init__(
            document["detail"], retry_after_seconds=document["retry_after_seconds"], **document["data"]
        )
        self.code = document["code"]  # type: ignore[misc]
        self.kind = Kind(document["kind"])  # type: ignore[misc]
        self.is_final = document["may_have_cost"]


def describe_failure(error: DomainError) -> bytes:
    """Write an error so that `CallFailed` says the same; what may have cost a provider is not to be tried again."""
    document = {
        "code": error.code,
        "kind": error.kind.value,
        "detail": error.detail,
        "data": error.data,
        "retry_after_seconds": error.retry_after_seconds,
        "may_have_cost": getattr(error, "may_have_cost", False),
    }
    if isinstance(error, UpstreamRefused):
        document |= _as_the_upstream_said(error)
    return json.dumps(document, default=str).encode()


def _as_the_upstream_said(error: UpstreamRefused) -> dict[str, Any]:
    """Pass on what the upstream found wrong with the request: the caller alone can put it right."""
    return {
        "code": error.error["code"] or error.code,
        "kind": _REFUSALS.get(error.status, Kind.MALFORMED).value,
        "detail": error.error["message"],
        "data": {"param": error.error["param"]},
    }


def replies(invoker: Invoker, inbox: Inbox) -> Generator[Reply | None]:
    """Give the DATA and END replies of a call as they come, and None after every `PING_SECONDS` without one.

    Ends after END. Raises CallFailed, ModelsOverloaded when no worker began in time, CallLost. Close the iterator
    early to cancel the call.
    """
    is_over = False
    try:
        for reply in _watched(invoker, inbox):
            is_over = reply is not None and reply.kind in (ReplyKind.END, ReplyKind.FAILED)
            if reply is not None and reply.kind is ReplyKind.FAILED:
                raise CallFailed(json.loads(reply.data))
            yield reply
            if is_over:
                return
    except ModelsOverloaded:
        is_over = True
        raise
    finally:
        inbox.close()
        if not is_over:
            _cancel(invoker, inbox)


def _watched(invoker: Invoker, inbox: Inbox) -> Iterator[Reply | None]:
    began = False
    heard_at = time.monotonic()
    while True:
        reply = inbox.receive(PING_SECONDS)
        if reply is None:
            silence = time.monotonic() - heard_at
            if not began and silence > QUEUE_SECONDS:
                if give_up(invoker, inbox.address.invocation_id):
                    raise ModelsOverloaded
                began, heard_at = True, time.monotonic()
            elif began and silence > SILENCE_SECONDS:
                raise CallLost
            yield None
            continue
        began, heard_at = True, time.monotonic()
        if reply.kind is ReplyKind.LOST:
            raise CallLost
        if reply.kind is not ReplyKind.ALIVE:
            yield reply


def _cancel(invoker: Invoker, inbox: Inbox) -> None:
    try:
        invoker.queue.withdraw(inbox.address.invocation_id)
    except redis.RedisError:
        # Without Valkey the worker cannot reply either, and stops at its next attempt.
        log.warning("invocation.not_cancelled", invocation_id=inbox.address.invocation_id)
