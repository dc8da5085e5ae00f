"""The consumer of model calls in a Celery worker: its queues, its scheduling, and its end."""

import inspect
import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import pytest
from celery import Celery, bootsteps
from celery.concurrency.thread import TaskPool
from celery.exceptions import InvalidTaskError
from celery.worker import state, strategy
from celery.worker.consumer.tasks import Tasks
from kombu import Consumer
from kombu.asynchronous import Hub
from kombu.transport import redis
from kombu.utils.scheduling import round_robin_cycle

from deploy.embedded.valkey import EmbeddedValkey
from shared.ids import new_id
from shared.messaging.broker import Broker
from shared.messaging.publisher import create_celery
from shared.messaging.queues import MODELS
from shared.messaging.replies import ReplyAddress
from shared.messaging.valkey import connect_valkey
from shared.models.execution import CallScheduler
from shared.models.heartbeats import Heartbeats
from shared.models.queue.call_queue import TASK, CallQueue, QueuedCall, parked_queue, queue_of, write_message
from tests.support.data.identity import make_settings
from tests.support.models.call_messages import forget_calls, waiting_calls
from tests.support.processes.stack import wait_until
from workers import models
from workers.call_strategy import CallStrategy
from workers.handling import WorkerContext
from workers.models import FinalRead, ParkedQueueSubscriber, add_consumers

RABBITMQ = "amqp://127.0.0.1:1"


@pytest.fixture
def context(database_url: str, valkey_server: EmbeddedValkey) -> Iterator[WorkerContext]:
    context = WorkerContext(make_settings(database_url=database_url, redis_url=valkey_server.url))
    yield context
    context.database.dispose()


@pytest.fixture
def app(context: WorkerContext, valkey_server: EmbeddedValkey) -> Iterator[Celery]:
    app = create_celery(valkey_server.url)
    app.amqp.queues.select(list(MODELS))
    add_consumers(app, context)
    yield app
    app.close()


@pytest.mark.parametrize(("queue", "takes"), [(MODELS[0], True), ("uploads", False)])
def test_only_the_worker_of_the_queues_takes_calls(app: Celery, queue: str, *, takes: bool) -> None:
    app.amqp.queues.select([queue])
    (step,) = app.steps["worker"]
    worker = SimpleNamespace(app=app, concurrency=2)
    assert step(worker).include_if(worker) is takes


def test_strategy_reads_only_calls_it_can_begin_and_checks_parked_ones(app: Celery) -> None:
    assert app.conf.worker_disable_prefetch
    assert app.steps["consumer"] >= {ParkedQueueSubscriber, FinalRead}


def test_calls_under_way_are_cancelled_after_the_drain(
    app: Celery, context: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled: list[object] = []

    def cancel_all(heartbeats: Heartbeats) -> None:
        cancelled.append(heartbeats)

    monkeypatch.setattr(models, "DRAIN_SECONDS", 0.0)
    monkeypatch.setattr(Heartbeats, "cancel_all", cancel_all)
    worker = SimpleNamespace(app=app, concurrency=2)
    part = app.steps["worker"].pop()(worker)
    context.stop()
    assert not cancelled, "a worker that takes no calls has nothing to drain"
    part.start(worker)
    context.stop()
    part.stop(worker)
    wait_until(lambda: cancelled, "the drain is over")


class RecordingHandler:
    """What a strategy handed over, in place of the engine; `executor` runs it when the test says so."""

    def __init__(self, scheduler: CallScheduler) -> None:
        self.scheduler = scheduler
        self.made: list[str] = []
        self.refused: list[str] = []
        self.cancelled: list[str] = []
        self.handed: list[Callable[[], None]] = []
        self.futures: list[Future[None]] = []
        self.read: list[str] = []

    def run(self, call: QueuedCall) -> bool:
        self.made.append(str(call.address.invocation_id))
        return True

    def providers(self) -> list[str]:
        return ["p", "new"]

    def refuse(self, call: QueuedCall) -> None:
        self.refused.append(str(call.address.invocation_id))

    def cancel(self, call: QueuedCall) -> None:
        self.cancelled.append(str(call.address.invocation_id))

    def submit(self, act: Callable[..., None], *work: Any) -> Future[None]:
        self.handed.append(lambda: act(*work))
        self.futures.append(Future())
        return self.futures[-1]

    def run_submitted(self) -> None:
        while self.handed:
            self.handed.pop(0)()


@pytest.fixture
def carried(valkey_server: EmbeddedValkey) -> Iterator[RecordingHandler]:
    with connect_valkey(valkey_server.url) as valkey:
        yield RecordingHandler(CallScheduler(CallQueue(valkey), slots=8))
        forget_calls(valkey)


class Told:
    """Events, as a dispatcher would send them."""

    enabled = True

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def send(self, kind: str, **_: object) -> None:
        self.kinds.append(kind)


def strategy_of(carried: RecordingHandler, broker_url: str, told: Told | None = None) -> CallStrategy:
    app = create_celery(broker_url)
    pool = SimpleNamespace(executor=SimpleNamespace(submit=carried.submit), num_processes=8)
    consumer = SimpleNamespace(
        pool=pool,
        app=app,
        event_dispatcher=told,
        add_task_queue=carried.read.append,
        call_soon=lambda _: None,
        connection_errors=(),
    )
    task: Any = SimpleNamespace(name=TASK)
    return CallStrategy(carried, task, consumer)


def _no_ack() -> None:
    raise AssertionError("nothing is acknowledged on Valkey")


def message(provider: str = "p") -> Any:
    address = ReplyAddress(invocation_id=new_id(), channel="quartermaster:replies:x")
    entry = json.loads(
        write_message(QueuedCall(address=address, provider=provider, queue=queue_of(provider, new_id())))
    )
    return SimpleNamespace(
        headers=entry["headers"], body=entry["body"], delivery_info=entry["properties"]["delivery_info"]
    )


@pytest.mark.parametrize(("broker_url", "acknowledged"), [("redis://127.0.0.1:1", 0), (RABBITMQ, 1)])
def test_message_is_acknowledged_when_its_call_begins(
    carried: RecordingHandler, broker_url: str, acknowledged: int
) -> None:
    acks: list[int] = []
    take = strategy_of(carried, broker_url)
    sent = message()
    take(sent, None, lambda *_: acks.append(len(carried.made)), None, None)
    assert not acks
    assert sent.headers["id"] in state.requests
    carried.run_submitted()
    assert carried.made == [sent.headers["id"]]
    assert acks == [0] * acknowledged
    assert sent.headers["id"] not in state.requests
    assert Broker.of(broker_url).queue(MODELS[0]).no_ack is not bool(acknowledged)


def test_call_without_room_is_parked_and_made_after_another_call_ends(
    carried: RecordingHandler,
) -> None:
    take = strategy_of(carried, "redis://127.0.0.1:1")
    sent = [message() for _ in range(9)]
    for at in sent:
        take(at, None, _no_ack)
    assert len(carried.handed) == 7, "seven eighths of the slots"
    assert len(state.requests) == 7
    carried.run_submitted()
    assert sorted(carried.made) == sorted(at.headers["id"] for at in sent)
    assert not state.requests
    assert not state.reserved_requests


def test_a_revoked_call_is_ended_and_not_made(carried: RecordingHandler) -> None:
    told, sent = Told(), message()
    state.revoked.add(sent.headers["id"])
    strategy_of(carried, "redis://127.0.0.1:1", told)(sent, None, _no_ack)
    carried.run_submitted()
    assert (carried.made, carried.refused) == ([], [sent.headers["id"]])
    assert told.kinds == ["task-received", "task-revoked"]


def test_a_call_under_way_is_cancelled_by_a_termination(carried: RecordingHandler) -> None:
    sent = message()
    strategy_of(carried, "redis://127.0.0.1:1")(sent, None, _no_ack)
    state.requests[sent.headers["id"]].terminate(None)
    assert carried.cancelled == [sent.headers["id"]]
    carried.run_submitted()


def test_parked_calls_are_read_for_every_known_provider(carried: RecordingHandler) -> None:
    take = strategy_of(carried, "redis://127.0.0.1:1")
    take(message("other"), None, _no_ack)
    for _ in range(2):
        take.read_parked_calls()
    assert carried.read == [parked_queue(provider) for provider in ("other", "p", "new")]
    carried.run_submitted()


def test_call_not_begun_when_the_pool_stops_is_requeued(
    carried: RecordingHandler, valkey_server: EmbeddedValkey
) -> None:
    sent = message()
    strategy_of(carried, "redis://127.0.0.1:1")(sent, None, _no_ack)
    (future,) = carried.futures
    assert future.cancel()
    with connect_valkey(valkey_server.url) as valkey:
        assert [str(call.address.invocation_id) for call in waiting_calls(valkey)] == [sent.headers["id"]]


def test_call_read_while_the_worker_stops_is_requeued(
    carried: RecordingHandler, valkey_server: EmbeddedValkey
) -> None:
    take, sent = strategy_of(carried, "redis://127.0.0.1:1"), message()
    take.stop()
    take(sent, None, _no_ack)
    assert not carried.handed
    with connect_valkey(valkey_server.url) as valkey:
        assert [str(call.address.invocation_id) for call in waiting_calls(valkey)] == [sent.headers["id"]]


@pytest.mark.parametrize("body", ["[]", "{}", "[[],{},{}]", "nothing"])
def test_invalid_message_is_refused_as_an_invalid_task(carried: RecordingHandler, body: str) -> None:
    sent = message()
    sent.body = body
    with pytest.raises(InvalidTaskError):
        strategy_of(carried, "redis://127.0.0.1:1")(sent, None, _no_ack)


def test_celery_and_kombu_still_are_what_the_strategy_relies_on() -> None:
    """If an upgrade breaks this test, read `workers/call_strategy.py` against the new code, then change both."""
    assert list(inspect.signature(strategy.default).parameters)[:3] == ["task", "app", "consumer"]
    assert "def task_message_handler(message, body, ack, reject, callbacks" in inspect.getsource(strategy)
    assert "self.executor = ThreadPoolExecutor(" in inspect.getsource(TaskPool.__init__)
    assert isinstance(state.reserved_requests, WeakSet)
    assert isinstance(state.active_requests, WeakSet)
    for change in (state.task_reserved, state.task_accepted, state.task_ready):
        assert next(iter(inspect.signature(change).parameters)) == "request"
    assert "len(state.reserved_requests) >= limit" in inspect.getsource(Tasks.start)
    assert "waker.wake()" in inspect.getsource(Hub.call_soon)
    assert bootsteps.Blueprint.state_to_name[1] == "running"
    assert "if self._in_poll:" in inspect.getsource(redis.Channel.close)
    assert "self._brpop_read()" in inspect.getsource(redis.Channel.close)
    assert "no_ack = queue.no_ack if no_ack is None else no_ack" in inspect.getsource(Consumer._basic_consume)
    assert {"update", "consume", "rotate"} <= set(vars(round_robin_cycle))
    assert "queue_order_strategy" in redis.Channel.from_transport_options
