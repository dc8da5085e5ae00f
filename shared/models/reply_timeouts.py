"""Wait for the replies of a call, with a maximum time between two signs of life.

A call that is in no queue although no worker has begun it is queued again. If no worker begins a call in time, the
call's hold is released. If the worker of a call falls silent, or replies are lost, the client gets an error, and the
worker or a sweep settles the call. A worker is silent if it neither sends replies nor renews the call's lease. Closing
the iterator of `replies` cancels the call.
"""

import json
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import closing
from typing import Any

import redis

from shared.credits.holds import DISPATCH_LEASE_SECONDS, Lease, Stage
from shared.errors import DomainError, Kind
from shared.messaging.replies import Inbox, Reply, ReplyAddress, ReplyKind
from shared.models.call_admission import ModelsOverloaded
from shared.models.invocations import Invoker, give_up
from shared.models.providers.errors import UpstreamRefused
from shared.models.queue.call_queue import QueuedCall, queue_of
from shared.observability.telemetry import get_logger

log = get_logger(__name__)

PING_SECONDS = 2.0
QUEUE_SECONDS = 30.0
"""Maximum time in the queue; shorter than the lease of the hold."""
IDLE_SECONDS = 7.0
"""Maximum time without a reply and without a renewal of the lease. A live worker does each every few seconds."""
MAX_IDLE_SECONDS = 30.0
"""Maximum time without a reply although the lease is renewed, or while Postgres does not return the lease."""
GIVE_UP_SECONDS = 30.0
"""Maximum time for Postgres to report whether a released call had begun."""
_REFUSALS = {413: Kind.TOO_LARGE, 422: Kind.INVALID}


class CallLost(DomainError):
    """The reply was lost on its way. The call may have been charged and is not repeated."""

    code = "provider_error"
    kind = Kind.UPSTREAM_FAILED
    is_final = True


class CallFailed(DomainError):
    """The call failed in the worker, with the error that the worker reported."""

    def __init__(self, document: dict[str, Any]) -> None:
        super().__init__(
            document["detail"], retry_after_seconds=document["retry_after_seconds"], **document["data"]
        )
        self.code = document["code"]  # type: ignore[misc]
        self.kind = Kind(document["kind"])  # type: ignore[misc]
        self.is_final = document["may_have_cost"]


def describe_failure(error: DomainError) -> bytes:
    """Serialize an error for `CallFailed`. An error that may have cost something is marked as final."""
    document = {
        "code": error.code,
        "kind": error.kind.value,
        "detail": error.detail,
        "data": error.data,
        "retry_after_seconds": error.retry_after_seconds,
        "may_have_cost": getattr(error, "may_have_cost", False),
    }
    if isinstance(error, UpstreamRefused):
        document |= _upstream_refusal(error)
    return json.dumps(document, default=str).encode()


def _upstream_refusal(error: UpstreamRefused) -> dict[str, Any]:
    """Return the fields of the upstream's own error, which the caller needs to correct the request."""
    return {
        "code": error.error["code"] or error.code,
        "kind": _REFUSALS.get(error.status, Kind.MALFORMED).value,
        "detail": error.error["message"],
        "data": {"param": error.error["param"]},
    }


def ping_seconds() -> float:
    """Return the seconds to wait for a reply before checking the timeout."""
    return PING_SECONDS


def replies(
    invoker: Invoker, inbox: Inbox, wait_seconds: Callable[[], float] = ping_seconds
) -> Generator[Reply | None]:
    """Yield the DATA and END replies of a call as they arrive, and None after each `wait_seconds()` without one.

    A caller with a `wait_seconds()` of zero resumes the iterator when the inbox notifies it, and every `PING_SECONDS`.
    The iterator ends after END. Raises CallFailed, CallLost, and ModelsOverloaded if no worker began in time. Close the
    iterator early to cancel the call. Apart from that wait, the iterator neither blocks nor does I/O, because one
    thread serves the responses of all clients (`web/server/response_writer.py`).
    """
    is_over = False
    try:
        for reply in _receive(invoker, inbox, wait_seconds):
            is_over = reply is not None and reply.kind in (ReplyKind.END, ReplyKind.FAILED)
            if reply is not None and reply.kind is ReplyKind.FAILED:
                raise CallFailed(json.loads(reply.data))
            yield reply
            if is_over:
                return
    except ModelsOverloaded:
        # The hold was released before the call began, so there is nothing to cancel.
        is_over = True
        raise
    finally:
        # Close the inbox first, so that no late reply is buffered for a reader that has left.
        inbox.close()
        invoker.admission.end(inbox.address.invocation_id)
        if not is_over:
            invoker.cancellations.add(inbox.address.invocation_id)


def _receive(invoker: Invoker, inbox: Inbox, wait_seconds: Callable[[], float]) -> Iterator[Reply | None]:
    with closing(IdleTimeout(invoker, inbox)) as idle_timeout:
        while True:
            reply = inbox.receive(wait_seconds())
            if reply is None:
                idle_timeout.check()
                yield None
                continue
            idle_timeout.reset()
            if reply.kind is ReplyKind.LOST:
                raise CallLost
            # Do not yield a heartbeat, which only restarts the timeout.
            if reply.kind is not ReplyKind.ALIVE:
                yield reply


class IdleTimeout:
    """The timeout of one call's replies. Does no I/O in the caller's thread."""

    def __init__(self, invoker: Invoker, inbox: Inbox) -> None:
        self._invoker = invoker
        self._inbox = inbox
        self._invocation_id = inbox.address.invocation_id
        self._ended_at: float | None = None
        self._requeueing: Future[None] | None = None
        self._giving_up: Future[bool] | None = None
        self.reset()

    def reset(self) -> None:
        """Restart the timeout, because a reply has arrived."""
        self._received_at = self._idle_since = time.monotonic()
        self.close()

    def close(self) -> None:
        """Cancel the background queries that have not started."""
        for future in (self._requeueing, self._giving_up):
            if future is not None:
                future.cancel()
        self._requeueing = self._giving_up = None

    def check(self) -> None:
        """Check the timeout; call it every few seconds.

        Raises ModelsOverloaded if no worker began the call and the call's hold was released. Raises CallLost if the
        call's worker has died or its last reply was lost.
        """
        now = time.monotonic()
        if now - self._idle_since <= IDLE_SECONDS / 2:
            return
        # Request the lease before it is needed, because the first request returns None.
        lease = self._invoker.leases.find(self._invocation_id)
        if now - self._idle_since <= IDLE_SECONDS:
            return
        if self._giving_up is not None:
            self._check_given_up(self._giving_up, now, lease)
        elif lease is None:
            self._check_without_lease(now)
        elif lease.stage is Stage.WAITING:
            self._check_queued(now, lease)
        elif lease.stage is Stage.ENDED:
            self._check_ended(now)
        else:
            self._check_running(now, lease)

    def _check_without_lease(self, now: float) -> None:
        if now - self._received_at > MAX_IDLE_SECONDS:
            self._give_up()

    def _check_queued(self, now: float, lease: Lease) -> None:
        if now - self._received_at > QUEUE_SECONDS:
            self._give_up()
            return
        # The call may still wait in its queue: restart the idle period, and requeue the call if it was lost.
        self._idle_since = now
        if self._requeueing is None or self._requeueing.done():
            self._requeueing = self._invoker.threads.submit(
                _requeue_if_lost, self._invoker, self._inbox.address, lease
            )

    def _give_up(self) -> None:
        """Release the call's hold in a background thread. After the release, wake the reader of the inbox."""
        self._giving_up = self._invoker.threads.submit(give_up, self._invoker, self._invocation_id)
        self._giving_up.add_done_callback(lambda _: self._inbox.notify())

    def _check_given_up(self, giving_up: Future[bool], now: float, lease: Lease | None) -> None:
        if not giving_up.done():
            if now - self._received_at > MAX_IDLE_SECONDS + GIVE_UP_SECONDS:
                raise CallLost
            return
        if giving_up.result():
            raise ModelsOverloaded
        if lease is None:
            raise CallLost
        self.reset()

    def _check_ended(self, now: float) -> None:
        """Raise CallLost if the last reply has not arrived `PING_SECONDS` after the call was found settled."""
        if self._ended_at is None:
            self._ended_at = now
        elif now - self._ended_at > PING_SECONDS:
            raise CallLost

    def _check_running(self, now: float, lease: Lease) -> None:
        if now - self._received_at > MAX_IDLE_SECONDS:
            raise CallLost
        renewed_at = now - (DISPATCH_LEASE_SECONDS - lease.remaining_seconds)
        if now - renewed_at > IDLE_SECONDS:
            raise CallLost
        # Measure the silence from the renewal, which shows that the worker was alive at that time.
        self._idle_since = renewed_at


def _requeue_if_lost(invoker: Invoker, address: ReplyAddress, lease: Lease) -> None:
    if lease.organization_id is None or lease.provider is None:
        return
    queue = queue_of(lease.provider, lease.organization_id)
    call = QueuedCall(address=address, provider=lease.provider, queue=queue)
    try:
        if invoker.queue.requeue_if_lost(call):
            log.warning("invocation.returned", invocation_id=address.invocation_id)
    except redis.RedisError as error:
        log.warning("invocation.not_returned", invocation_id=address.invocation_id, error=str(error))
