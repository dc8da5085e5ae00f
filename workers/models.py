"""Carry out model calls in the worker that serves the queue `models`: a part of it that takes them from their list."""

import threading
from functools import partial

import redis
from celery import Celery

from shared import failpoints
from shared.models.call_queue import find_cancelled
from shared.models.catalog_file import CatalogFile
from shared.models.engine import Engine
from shared.models.execution import AdmittedCall, Executor, FairCalls, execute
from shared.models.heartbeats import Heartbeats
from shared.models.providers.concurrency import ModelSlots
from shared.models.providers.routing import Router
from shared.models.shares import Announcement
from shared.queues import MODELS
from shared.telemetry import get_logger
from shared.valkey import connect_valkey, writes_to_disk
from workers.consumer_pool import ConsumerPool
from workers.consumers import add_step
from workers.handling import WorkerContext, recorded

log = get_logger(__name__)

KIND = "models.invoke"
DRAIN_SECONDS = 20.0
PATIENCE_SECONDS = 2.0


class ModelCalls:
    """The calls of a worker process, at most `limit` at once, and what they are carried out with."""

    def __init__(self, context: WorkerContext, *, limit: int) -> None:
        self.executor = _executor(context)
        self._announcement = Announcement(self.executor.valkey, limit)
        self._fair = FairCalls(self.executor.queue, slots=limit, patience_seconds=PATIENCE_SECONDS)
        self._pool = ConsumerPool(self._fair.take, self.carry_out, limit=limit, name="model-call")

    def start(self) -> None:
        """Begin to take calls."""
        self._announcement.start()
        self._pool.start()

    def carry_out(self, admitted: AdmittedCall) -> None:
        """Carry out one call, and those put aside that find room when it ends; meet whatever happens."""
        following: AdmittedCall | None = admitted
        while following is not None:
            failpoints.hit("invocation.taken")
            with recorded(KIND), following.slot:
                execute(self.executor, following.call.address)
            following = self._fair.take_following(following.call.provider)

    def drain(self) -> None:
        """Let the calls under way end for a while, then cancel them."""
        timer = threading.Timer(DRAIN_SECONDS, self.executor.engine.heartbeats.cancel_all)
        timer.daemon = True
        timer.start()

    def stop(self) -> None:
        """Take no more, and wait for those under way."""
        self._announcement.stop()
        self._pool.stop()


def add_consumers(app: Celery, context: WorkerContext) -> None:
    """Have the worker of the queue `models` take model calls."""
    add_step(app, context, MODELS, lambda limit: ModelCalls(context, limit=limit))


def _warn_of_a_disk(valkey: redis.Redis) -> None:
    try:
        if writes_to_disk(valkey):
            log.warning("models.prompts_reach_a_disk", remedy="set MODELS_REDIS_URL")
    except redis.RedisError as error:
        log.info("models.persistence_unknown", error=str(error))


def _executor(context: WorkerContext) -> Executor:
    settings = context.settings
    valkey = connect_valkey(settings.models_redis_url or settings.redis_url)
    _warn_of_a_disk(valkey)
    engine = Engine(
        database=context.database,
        router=Router(),
        slots=ModelSlots(connect_valkey(settings.redis_url)),
        heartbeats=Heartbeats(context.database, partial(find_cancelled, valkey)),
        shows_cost=settings.usage_cost,
    )
    catalog = CatalogFile(settings.models_config).watch()
    return Executor.over(valkey, engine=engine, catalog=catalog)
