"""The worker's use of the engine: schedule calls by provider, run them, and send replies to the web process.

Scheduling is fair among providers: the worker's slots are a pool with providers as tenants, and one provider may use
at most seven eighths. A call without room at its provider is parked in a queue of that provider and occupies no thread.
This worker takes a parked call when a call of the same provider ends; another worker may take it earlier. The last
frame of a reply is sent after the settlement, so a complete reply has been charged. The exception is a Postgres that is
unavailable for too long (`settlements`).
"""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Self
from uuid import UUID

import redis

from shared.credits.settlement import Outcome, Status
from shared.errors import DomainError, ServiceUnavailable
from shared.fairness.admission import Pool, PoolKey, Slot
from shared.messaging.replies import ReplyAddress, ReplyKind, ReplyWriter
from shared.messaging.reply_publisher import ReplyPublisher
from shared.models.catalog import ModelEntry
from shared.models.catalog_file import CatalogFile
from shared.models.concurrency_limits import PROVIDER_ALPHA
from shared.models.dialects import end_of_stream, frame_writer
from shared.models.engine import NO_TOKENS, CallInput, Engine, ModelCall, StreamPump
from shared.models.heartbeats import LeasedCall
from shared.models.model_slots import ModelSlots
from shared.models.providers.errors import CallCancelled
from shared.models.queue.call_queue import (
    TASK,
    AcceptedRequest,
    CallQueue,
    QueuedCall,
    is_cancelled,
    parked_queue,
)
from shared.models.reply_timeouts import describe_failure
from shared.models.stream_loop import StreamLoop
from shared.observability.telemetry import bind_log_context, get_logger, reset_log_context
from shared.observability.tracing import continued, trace_id

log = get_logger(__name__)

_REQUEST_LOST = "The call was lost before it began, and nothing was charged. Retry it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """The dependencies of queued calls in a worker process."""

    engine: Engine
    slots: ModelSlots
    valkey: redis.Redis
    queue: CallQueue
    catalog: CatalogFile
    publisher: ReplyPublisher
    loop: StreamLoop

    @classmethod
    def over(
        cls, valkey: redis.Redis, *, engine: Engine, catalog: CatalogFile, queue: CallQueue | None = None
    ) -> Self:
        """Create an executor. Requests and replies are on `valkey`, and without a `queue` the messages are, too."""
        publisher = ReplyPublisher(valkey)
        return cls(
            engine=engine,
            slots=ModelSlots(valkey),
            valkey=valkey,
            queue=queue or CallQueue(valkey),
            catalog=catalog,
            publisher=publisher,
            loop=StreamLoop(publisher.batched),
        )


def execute(executor: Executor, address: ReplyAddress) -> None:
    """Run a call if this worker gets the right to make it. A call without a request is ended without being made."""
    with (
        closing(ReplyWriter(executor.publisher, address)) as writer,
        executor.engine.dispatch(address.invocation_id, writer) as leased,
    ):
        if leased is None:
            return
        # Read the request after the dispatch: reading deletes it, so only the worker that makes the call may read it.
        request = _take(executor, address.invocation_id)
        if request is None:
            _end_unmade(executor, leased)
        else:
            with _traced(request):
                _carry_out(executor, request, leased)


@contextmanager
def _traced(request: AcceptedRequest) -> Iterator[None]:
    """Attach the call and the call's log lines to the trace of the HTTP request that created the call."""
    parent = request.traceparent
    token = bind_log_context(trace_id=trace_id(parent)) if parent else None
    try:
        with continued(TASK, parent, quartermaster__job=TASK, gen_ai__request__model=request.entry.id):
            yield
    finally:
        if token is not None:
            reset_log_context(token)


def _take(executor: Executor, invocation_id: UUID) -> AcceptedRequest | None:
    try:
        return executor.queue.take_request(invocation_id)
    except redis.RedisError as error:
        log.warning("request.not_taken", invocation_id=invocation_id, error=str(error))
        return None


def _end_unmade(executor: Executor, leased: LeasedCall) -> None:
    """End a call without a request: the web process withdrew it, or Valkey lost it."""
    is_withdrawn = _is_cancelled(executor, leased.dispatch.invocation_id)
    status = Status.CANCELLED if is_withdrawn else Status.FAILED
    executor.engine.settle(leased, Outcome(status=status, counts=NO_TOKENS))
    leased.send(ReplyKind.FAILED, describe_failure(ServiceUnavailable(_REQUEST_LOST)))


def _is_cancelled(executor: Executor, invocation_id: UUID) -> bool:
    try:
        return is_cancelled(executor.valkey, invocation_id)
    except redis.RedisError:
        return False


def _carry_out(executor: Executor, request: AcceptedRequest, leased: LeasedCall) -> None:
    parsed, entry = request.parsed(), _trusted_upstreams(request.entry, executor.catalog)
    end = end_of_stream(parsed.dialect)
    call = ModelCall(executor.engine, leased, frame_writer(parsed.dialect))
    call_input = CallInput(entry=entry, parsed=parsed, created=request.created, cancelled=leased.cancelled)
    pump = StreamPump(loop=executor.loop, send=partial(leased.send, ReplyKind.DATA))
    dispatch = leased.dispatch
    slot = executor.slots.taken_over(
        dispatch.invocation_id, dispatch.organization_id, model=entry.id, limit=entry.concurrency_limit
    )
    try:
        # If sending to the web process fails, `closing` ends the request to the upstream.
        with closing(call.relay(call_input, slot, pump)) as frames:
            for data in frames:
                if not leased.send(ReplyKind.DATA, data):
                    # Raise inside the `closing` block, so that `relay` closes the stream and settles the call.
                    raise CallCancelled(may_have_cost=True)
    except DomainError as error:
        _send_failure(error, leased, call.ending + end)
    else:
        leased.send(ReplyKind.END, call.ending + end if request.is_stream else call.reply.body())


def _trusted_upstreams(entry: ModelEntry, catalog: CatalogFile) -> ModelEntry:
    """Return the entry with only the upstreams that this worker's catalog trusts with their secrets; possibly none.

    Without this check, an intruder who can write to Valkey could redirect a secret to another address.
    """
    upstreams = tuple(at for at in entry.upstreams if catalog.trusts(at.provider))
    return entry if len(upstreams) == len(entry.upstreams) else replace(entry, upstreams=upstreams)


def _send_failure(error: DomainError, leased: LeasedCall, frames: bytes) -> None:
    """Report an error to the web process: as the stream's error frames if data was sent, else as the error itself."""
    if leased.has_sent_data:
        leased.send(ReplyKind.END, frames)
    else:
        leased.send(ReplyKind.FAILED, describe_failure(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedCall:
    """A call to run, and the slot that it occupies in this worker."""

    call: QueuedCall
    slot: Slot


class CallScheduler:
    """The scheduling of queued calls in one worker process; safe to share between threads."""

    def __init__(self, queue: CallQueue, *, slots: int) -> None:
        self._queue = queue
        self._pool = Pool("model_worker", slots, alpha=PROVIDER_ALPHA)
        self._parked: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    def closed_queues(self) -> frozenset[str]:
        """Return the queues of parked calls for the providers without room in this worker."""
        return frozenset(parked_queue(str(provider)) for provider in self._pool.tenants_at_limit())

    def admit(self, call: QueuedCall) -> AdmittedCall | None:
        """Acquire a slot for a call, or park the call and return None.

        If Valkey does not accept the parked call, this worker drops the call. The web process sends the call again.
        """
        slot = self._pool.try_acquire(PoolKey(call.provider, None))
        if slot is not None:
            return AdmittedCall(call=call, slot=slot)
        with self._lock:
            # Record the provider before parking, so that a thread that ends a call now checks for parked calls.
            self._parked |= {call.provider}
        try:
            self._queue.park(call)
        except redis.RedisError as error:
            log.warning("call.not_put_aside", provider=call.provider, error=str(error))
        return None

    def requeue(self, call: QueuedCall) -> None:
        """Return a call to its queue for another worker. If Valkey fails, the web process sends the call again."""
        try:
            self._queue.requeue(call)
        except redis.RedisError as error:
            log.warning("call.not_given_back", provider=call.provider, error=str(error))

    def take_parked(self, provider: str) -> AdmittedCall | None:
        """Pop and admit a call that any worker has parked for this provider. Return None if none can run now."""
        with self._lock:
            self._parked |= {provider}
        return self.take_following(provider)

    def take_following(self, provider: str) -> AdmittedCall | None:
        """Pop and admit a parked call after a call of its provider has ended. Return None if none can run now."""
        # Skip the round trip to Valkey in the usual case: this worker knows of no parked call.
        if provider not in self._parked:
            return None
        try:
            call = self._queue.take_parked(provider)
        except (redis.RedisError, KeyError, ValueError) as error:
            log.warning("calls.not_taken", provider=provider, error=str(error))
            return None
        if call is not None:
            return self.admit(call)
        with self._lock:
            # The queue is empty, so forget the provider until `admit` parks a call again.
            self._parked -= {provider}
        return None
