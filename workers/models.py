"""The consumer of model calls in a worker that serves the queues of `models`."""

import contextlib
import threading
from functools import partial
from typing import Any

import redis
from celery import Celery, bootsteps

from shared import failpoints
from shared.messaging.broker import Broker
from shared.messaging.queues import MODELS
from shared.messaging.redis_transport import QueueRoundRobin
from shared.messaging.valkey import connect_valkey, writes_to_disk
from shared.models.catalog_file import CatalogFile
from shared.models.concurrency_limits import SlotAnnouncer
from shared.models.engine import Engine
from shared.models.execution import CallScheduler, Executor, execute
from shared.models.heartbeats import Heartbeats
from shared.models.providers.routing import Router
from shared.models.queue.call_queue import TASK, QueuedCall, find_cancelled
from shared.models.queue.rabbitmq_calls import broker_of_calls, open_call_queue
from shared.models.settlements import Settlements
from shared.observability.telemetry import get_logger
from workers.call_strategy import CallStrategy
from workers.consumers import add_step
from workers.handling import WorkerContext, record_job
from workers.settlement_drain import drain_settlements

log = get_logger(__name__)

DRAIN_SECONDS = 20.0
POLL_SECONDS = 1.0
PREFETCHED = 4
"""Unacknowledged messages of each queue that a worker accepts from RabbitMQ."""


class ModelCallConsumer:
    """Runs the calls of a worker process, at most `limit` at once."""

    def __init__(self, context: WorkerContext, *, limit: int) -> None:
        self.executor = _executor(context)
        self.scheduler = CallScheduler(self.executor.queue, slots=limit)
        self._announcement = SlotAnnouncer(self.executor.valkey, limit)

    def start(self) -> None:
        """Announce this process's slots. Celery's consumer starts after this step and takes the calls."""
        QueueRoundRobin.closed = self.scheduler.closed_queues
        self._announcement.start()

    def run(self, call: QueuedCall) -> bool:
        """Run one call. Return False if it failed with an unexpected exception, which is logged."""
        failpoints.hit("invocation.taken")
        is_done = False
        with record_job(TASK):
            execute(self.executor, call.address)
            is_done = True
        return is_done  # noqa: RET504 (`record_job` meets what is raised)

    def providers(self) -> set[str]:
        """Return the names of the providers of the catalog in force."""
        return {provider.name for provider in self.executor.catalog.current().providers}

    def refuse(self, call: QueuedCall) -> None:
        """End a revoked call without a charge."""
        with record_job(TASK):
            # Withdraw the request: `execute` settles a call without a request as cancelled.
            self.executor.queue.withdraw(call.address.invocation_id)
            execute(self.executor, call.address)

    def cancel(self, call: QueuedCall) -> None:
        """Mark a call under way as cancelled. The thread that sends heartbeats stops the call within two seconds."""
        with record_job(TASK):
            self.executor.queue.withdraw(call.address.invocation_id)

    def drain(self) -> None:
        """Cancel the calls that are still under way after `DRAIN_SECONDS`."""
        timer = threading.Timer(DRAIN_SECONDS, self.executor.engine.heartbeats.cancel_all)
        # A daemon thread does not delay the end of a process without calls.
        timer.daemon = True
        timer.start()

    def stop(self) -> None:
        """Withdraw the announced slots. Celery's pool stops after this step and waits for calls under way."""
        self._announcement.stop()


def add_consumers(app: Celery, context: WorkerContext) -> None:
    """Run the consumer of model calls in workers that serve the queues of model calls."""
    consumers: list[ModelCallConsumer] = []

    def make(limit: int) -> ModelCallConsumer:
        consumers[:] = [ModelCallConsumer(context, limit=limit)]
        return consumers[0]

    def strategy(task: Any, _: Celery, consumer: Any) -> CallStrategy:
        return CallStrategy(consumers[0], task, consumer)

    task: Any = app.task(name=TASK, ignore_result=True, shared=False)(_never_called)
    task.Strategy = strategy
    _read_from(app, broker_of_calls(context.settings))
    # Without acknowledgements, do not prefetch: SIGTERM would lose messages that were read and not begun.
    app.conf.worker_disable_prefetch = app.amqp.queues[MODELS[0]].no_ack
    add_step(app, context, MODELS[0], make)
    app.steps["consumer"].update((ParkedQueueSubscriber, FinalRead))


def _read_from(app: Celery, broker_url: str) -> None:
    """Read model calls from their own broker, so that they continue while the broker of jobs is unavailable."""
    if broker_url == app.conf.broker_address:
        return
    if others := set(app.amqp.queues.consume_from) - set(MODELS):
        raise ValueError(f"model calls have a broker of their own; serve {sorted(others)} by another worker")
    app.conf.update(Broker.of(broker_url).settings)


class ParkedQueueSubscriber(bootsteps.StartStopStep):
    """Reads the parked calls of every provider in the catalog. Operators may change the catalog at any time.

    Also limits how many messages RabbitMQ pushes to one worker, so that messages remain for the other workers.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)
    _timer: Any = None

    def start(self, consumer: Any) -> None:
        """Read the parked calls every second."""
        strategy = consumer.strategies[TASK]
        if strategy.acknowledges:
            consumer.qos.value = PREFETCHED
            # Send the value to RabbitMQ: the assignment alone does not.
            consumer.qos.update()
        self._timer = consumer.timer.call_repeatedly(POLL_SECONDS, strategy.read_parked_calls)

    def stop(self, consumer: Any) -> None:
        """Stop reading parked calls."""
        if self._timer is not None:
            self._timer.cancel()
        if TASK in consumer.strategies:
            consumer.strategies[TASK].discard_deferred()


class FinalRead(bootsteps.StartStopStep):
    """Completes the blocking read of a stopping worker, and returns the messages that it yields to their queues."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def stop(self, consumer: Any) -> None:
        """Close the channel, which waits for the read under way. Only Valkey needs this: it has no acknowledgements."""
        is_stopping = consumer.controller.blueprint.human_state() != "running"
        if is_stopping and consumer.task_consumer and consumer.connection.transport.driver_type == "redis":
            consumer.strategies[TASK].stop()
            with contextlib.suppress(Exception):  # the worker stops even if the broker fails
                consumer.task_consumer.channel.close()

    def terminate(self, consumer: Any) -> None:
        """Do what `stop` does. Celery calls this method if the worker stops without waiting for its work."""
        self.stop(consumer)


def _never_called(**_: object) -> None:
    """Serve as the body of the Celery task; never called, because `CallStrategy` handles the task's messages."""
    raise NotImplementedError


def _warn_if_prompts_reach_disk(valkey: redis.Redis) -> None:
    try:
        if writes_to_disk(valkey):
            log.warning("models.prompts_reach_a_disk", remedy="set MODELS_REDIS_URL")
    except redis.RedisError as error:
        log.info("models.persistence_unknown", error=str(error))


def _executor(context: WorkerContext) -> Executor:
    settings = context.settings
    valkey = connect_valkey(settings.models_redis_url or settings.redis_url)
    _warn_if_prompts_reach_disk(valkey)
    engine = Engine(
        database=context.database,
        router=Router(),
        heartbeats=Heartbeats(context.database, partial(find_cancelled, valkey)),
        settlements=Settlements(context.database),
        shows_cost=settings.usage_cost,
    )
    drain_settlements(context, engine.settlements)
    catalog = CatalogFile(settings.models_config).watch()
    queue = open_call_queue(settings, valkey)
    return Executor.over(valkey, engine=engine, catalog=catalog, queue=queue)
