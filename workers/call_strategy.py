"""How this worker takes a model call's message from Celery: straight to a thread of Celery's pool.

Celery's own strategy makes a request, which goes through a tracer, time limits and a result: more than half of a
message's cost. A task's `Strategy` may do otherwise. What operators look at is kept: `inspect active` and `reserved`,
`revoke`, the events that `-E` switches on, and the count of messages in hand, by which a worker stops reading when it
has no thread left (`worker_disable_prefetch`). A test names the parts of Celery that this module relies upon.

RabbitMQ pushes messages and wants them acknowledged. A message is acknowledged, by Celery's loop, when its call begins;
what comes while no thread is free is held, and what is held goes to other workers when this one ends or dies. The calls
put aside are asked for, not pushed: a worker without room would be pushed what it has just put aside.
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
    """What makes the calls."""

    scheduler: CallScheduler

    def run(self, call: QueuedCall) -> bool:
        """Make a call; False when that failed in a way nobody foresaw."""

    def providers(self) -> Collection[str]:
        """Name the providers that calls may be made to."""

    def refuse(self, call: QueuedCall) -> None:
        """End a call that is not to be made."""

    def cancel(self, call: QueuedCall) -> None:
        """Have the thread that makes a call stop; returns at once."""


class CallRequest:
    """One call in hand, as Celery's commands see it."""

    acknowledged = True
    hostname = socket.gethostname()

    def __init__(self, task: Task[Any, Any], call: QueuedCall, cancel: Callable[[QueuedCall], None]) -> None:
        """Begin now."""
        self.task = task
        self.name = task.name
        self.call = call
        self.id = str(call.address.invocation_id)
        self.time_start = time.time()
        self._cancel = cancel

    def info(self, safe: bool = False) -> dict[str, Any]:  # noqa: ARG002, FBT001, FBT002 (Celery's signature)
        """Describe it for `celery inspect`."""
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
        """Stop the call: a worker that makes it notices within a second or two."""
        self._cancel(self.call)


class CallStrategy:
    """What a consumer of Celery's does with the messages of model calls; made anew for each connection."""

    def __init__(self, handler: CallHandler, task: Task[Any, Any], consumer: Any) -> None:
        """Hand calls to the threads of the consumer's pool."""
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
        """Leave what is read from now on to other workers."""
        self._is_stopping = True

    def read_parked_calls(self) -> None:
        """Read the calls put aside for the providers known by now: a worker that put some there may have died."""
        for provider in self._handler.providers():
            self._subscribe_parked(provider)
            if self.acknowledges:
                self._submit_parked(provider)
        self._begin_deferred()

    def discard_deferred(self) -> None:
        """Leave what is held to whom the broker gives it next: the connection has ended."""
        self._deferred.clear()

    def __call__(self, message: Any, _: Any, ack: Acknowledge, *__: Any) -> None:
        """Begin the call of a message, or put it aside. Raises InvalidTaskError for what is no call."""
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
        """Begin the calls that came while no thread was free; in Celery's loop."""
        while self._deferred and not self._is_busy():
            self._begin(*self._deferred.popleft())

    def _submit_parked(self, provider: str) -> None:
        """Have a thread make a call that was put aside, if there is one and room for it, and then look again."""
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
        self._submit_parked(provider)
        self._make(request, _nothing, admitted)

    def _submit_request(self, request: CallRequest, act: Callable[..., None], *details: Any) -> None:
        """Have a thread act; a pool that stops before a thread has begun leaves the call to another worker."""

        def requeue_if_cancelled(future: Future[None]) -> None:
            if future.cancelled() and not self.acknowledges:
                self._handler.scheduler.requeue(request.call)

        self._submit(act, request, *details).add_done_callback(requeue_if_cancelled)

    def _make(self, request: CallRequest, acknowledge: Acknowledge, admitted: AdmittedCall) -> None:
        """Make a call, and those put aside that find room when it ends."""
        if self.acknowledges:
            acknowledge()  # from now on it counts no more against what the broker pushes
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
        """Have the next call in hand before the last one no more, so that its thread never seems to be free."""
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
        was_full = self._is_busy()
        state.task_ready(request)
        if self._deferred:
            self._consumer.call_soon(self._begin_deferred)
        if was_full:
            # The loop reads nothing while all threads are taken, and looks again when it is woken.
            self._consumer.call_soon(_nothing)

    def _subscribe_parked(self, provider: str) -> None:
        if provider in self._providers or self.acknowledges:
            return
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
    """Do nothing; called by Celery's loop, it has woken the loop."""
