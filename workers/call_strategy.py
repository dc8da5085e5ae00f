"""A Celery task strategy for model calls: pass a message directly to a thread of Celery's pool.

Celery's own strategy creates a request with tracer, time limits and result, which takes more than half of the time for
a message. Celery lets a task replace its strategy by the attribute `Strategy`. The features that operators use still
work: `inspect active` and `reserved`, `revoke` and the events of `-E`. Celery's count of reserved messages also stays
correct, so a worker without free threads stops reading (`worker_disable_prefetch`). A test names the parts of Celery
on which this module relies.

RabbitMQ pushes messages and requires acknowledgements. Celery's loop acknowledges a message when the message's call
begins. A message that arrives while no thread is free is deferred. If this worker ends or dies, RabbitMQ delivers the
deferred messages to another worker. This worker fetches parked calls one by one. If it subscribed to the queue of
parked calls, RabbitMQ would push back the calls that this worker has just parked.
"""

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

from celery import Task
from celery.exceptions import InvalidTaskError
from celery.utils.log import get_logger
from celery.worker import state

from shared.messaging.broker import Broker
from shared.messaging.queues import MODELS
from shared.models.execution import AdmittedCall, CallScheduler
from shared.models.queue.call_queue import QueuedCall, parked_queue, read_message

Acknowledge = Callable[..., object]
log = get_logger(__name__)


class CallHandler(Protocol):
    """Runs the calls for `CallStrategy`."""

    scheduler: CallScheduler

    def run(self, call: QueuedCall) -> bool:
        """Run a call. Return False if it failed with an unexpected exception."""

    def providers(self) -> Collection[str]:
        """Return the names of the providers in the catalog."""

    def refuse(self, call: QueuedCall) -> None:
        """End a call that must not be made."""

    def cancel(self, call: QueuedCall) -> None:
        """Request the cancellation of a call under way, without waiting for the call's end."""


class CallRequest:
    """A call that occupies a thread, with the attributes of a Celery request, which Celery's commands read."""

    acknowledged = True
    hostname = socket.gethostname()

    def __init__(self, task: Task[Any, Any], call: QueuedCall, cancel: Callable[[QueuedCall], None]) -> None:
        """Create the request, with the current time as its start."""
        self.task = task
        self.name = task.name
        self.call = call
        self.id = str(call.address.invocation_id)
        self.time_start = time.time()
        self._cancel = cancel

    def info(self, safe: bool = False) -> dict[str, Any]:  # noqa: ARG002, FBT001, FBT002 (Celery's signature)
        """Return the call's description for `celery inspect`."""
        return {
            "id": self.id,
            "name": self.name,
            "type": self.name,
            "args": [],
            "kwargs": {"provider": self.call.provider},
            "hostname": self.hostname,
            "time_start": self.time_start,
            "acknowledged": self.acknowledged,
            "worker_pid": os.getpid(),
        }

    def terminate(self, pool: Any, signal: Any = None) -> None:  # noqa: ARG002 (Celery's signature)
        """Cancel the call. The worker that makes the call stops within two seconds."""
        self._cancel(self.call)


class CallStrategy:
    """Handles the messages of model calls for one Celery consumer. Celery creates a strategy for each connection."""

    def __init__(self, handler: CallHandler, task: Task[Any, Any], consumer: Any) -> None:
        """Create a strategy that submits calls to the threads of the consumer's pool."""
        self._handler = handler
        self._task = task
        self._consumer = consumer
        self._submit = consumer.pool.executor.submit
        self._limit = consumer.pool.num_processes
        self.acknowledges = not consumer.app.amqp.queues[MODELS[0]].no_ack
        self._providers: set[str] = set()
        self._deferred: deque[tuple[QueuedCall, Acknowledge]] = deque()
        self._is_stopping = False

    def stop(self) -> None:
        """From now on, return each message to its queue, where another worker takes it."""
        self._is_stopping = True

    def read_parked_calls(self) -> None:
        """Read the parked calls of all providers in the catalog: a worker that parked some may have died."""
        for provider in self._handler.providers():
            self._subscribe_parked(provider)
            if self.acknowledges:
                self._submit_parked(provider)
        self._begin_deferred()

    def discard_deferred(self) -> None:
        """Discard the deferred messages of a closed connection: the broker delivers these messages again."""
        self._deferred.clear()

    def __call__(self, message: Any, _: Any, ack: Acknowledge, *__: Any) -> None:
        """Start the call of a message, or park the call. Raises InvalidTaskError if the message is invalid."""
        try:
            call = read_message(message.headers, message.body, message.delivery_info)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidTaskError(str(error)) from error
        self._event("received", call, name=self._task.name, args="[]", kwargs=f"provider={call.provider!r}")
        acknowledge = partial(ack, log, self._consumer.connection_errors) if self.acknowledges else _nothing
        if self.acknowledges and self._is_busy():
            self._deferred.append((call, acknowledge))
        else:
            self._begin(call, acknowledge)
        # The provider may be new to this worker, and other workers may have parked calls for it.
        self._subscribe_parked(call.provider)

    def _is_busy(self) -> bool:
        return bool(len(state.reserved_requests) >= self._limit)

    def _begin(self, call: QueuedCall, acknowledge: Acknowledge) -> None:
        if self._is_stopping:
            self._handler.scheduler.requeue(call)
            acknowledge()
        elif not _is_wanted(call):
            self._submit_request(self._reserve(call), self._refuse, acknowledge)
        elif (admitted := self._handler.scheduler.admit(call)) is not None:
            self._submit_request(self._reserve(call), self._make, acknowledge, admitted)
        else:
            acknowledge()

    def _begin_deferred(self) -> None:
        """Start deferred calls while threads are free. Called only by the thread of Celery's loop."""
        while self._deferred and not self._is_busy():
            self._begin(*self._deferred.popleft())

    def _submit_parked(self, provider: str) -> None:
        """Fetch and make a parked call in a thread, if its provider and the pool have room."""
        if parked_queue(provider) not in self._handler.scheduler.closed_queues() and not self._is_busy():
            self._submit(self._make_parked, provider)

    def _make_parked(self, provider: str) -> None:
        admitted = self._handler.scheduler.take_parked(provider)
        if admitted is None:
            return
        if not _is_wanted(admitted.call):
            with admitted.slot:
                self._handler.refuse(admitted.call)
            return
        request = self._reserve(admitted.call)
        # Submit the next parked call before this one runs: its provider may have room for both at once.
        self._submit_parked(provider)
        self._make(request, _nothing, admitted)

    def _submit_request(self, request: CallRequest, act: Callable[..., None], *details: Any) -> None:
        """Run `act` in a thread. If the pool stops before the thread begins, return the call to its queue."""

        def requeue_if_cancelled(future: Future[None]) -> None:
            # Requeue on Valkey only: RabbitMQ delivers a message without acknowledgement again.
            if future.cancelled() and not self.acknowledges:
                self._handler.scheduler.requeue(request.call)

        self._submit(act, request, *details).add_done_callback(requeue_if_cancelled)

    def _make(self, request: CallRequest, acknowledge: Acknowledge, admitted: AdmittedCall) -> None:
        """Make a call, and then the parked calls of the call's provider."""
        # Acknowledge before the call: RabbitMQ's prefetch limit must count waiting messages only.
        if self.acknowledges:
            acknowledge()
        try:
            following: AdmittedCall | None = admitted
            while following is not None:
                with following.slot:
                    self._make_one(following.call)
                following = self._following(following.call.provider)
                request = self._next(request, following)
        finally:
            self._release(request)

    def _make_one(self, call: QueuedCall) -> None:
        self._event("started", call)
        began_at = time.perf_counter()
        if self._handler.run(call):
            self._event("succeeded", call, result=None, runtime=time.perf_counter() - began_at)
        else:
            self._event("failed", call, exception="see the log", traceback=None)

    def _following(self, provider: str) -> AdmittedCall | None:
        while (following := self._handler.scheduler.take_following(provider)) is not None:
            if _is_wanted(following.call):
                return following
            with following.slot:
                self._handler.refuse(following.call)
        return None

    def _next(self, request: CallRequest, following: AdmittedCall | None) -> CallRequest:
        """Reserve the following call, then release the last call. In this order the thread never appears free."""
        if following is None:
            return request
        following_request = self._reserve(following.call)
        state.task_ready(request)
        return following_request

    def _refuse(self, request: CallRequest, acknowledge: Acknowledge) -> None:
        self._event("revoked", request.call, terminated=False, signum=None, expired=False)
        try:
            self._handler.refuse(request.call)
        finally:
            self._release(request)
            acknowledge()

    def _reserve(self, call: QueuedCall) -> CallRequest:
        request = CallRequest(self._task, call, self._handler.cancel)
        state.task_reserved(request)
        state.task_accepted(request)
        return request

    def _release(self, request: CallRequest) -> None:
        # Read this before `task_ready`, which frees the thread.
        was_full = self._is_busy()
        state.task_ready(request)
        if self._deferred:
            self._consumer.call_soon(self._begin_deferred)
        if was_full:
            # Celery's loop stopped reading while all threads were busy. Any callback makes the loop check again.
            self._consumer.call_soon(_nothing)

    def _subscribe_parked(self, provider: str) -> None:
        if provider in self._providers or self.acknowledges:
            return
        # Subscribe on Valkey only: from RabbitMQ, `_make_parked` fetches parked calls one by one.
        self._providers.add(provider)
        app, name = self._consumer.app, parked_queue(provider)
        app.amqp.queues.select_add(Broker.of(app.conf.broker_address).queue(name))
        self._consumer.add_task_queue(name)

    def _event(self, kind: str, call: QueuedCall, **fields: Any) -> None:
        dispatcher = self._consumer.event_dispatcher
        if dispatcher is not None and dispatcher.enabled:
            dispatcher.send(f"task-{kind}", uuid=str(call.address.invocation_id), **fields)


def _is_wanted(call: QueuedCall) -> bool:
    return str(call.address.invocation_id) not in state.revoked


def _nothing() -> None:
    """Do nothing. As a callback, this function wakes Celery's loop."""
