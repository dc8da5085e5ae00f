"""Run agents' turns in the test's own process as soon as they are queued, on threads, as workers do."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from shared.a2a.agent_turns.execution import TurnExecution
from shared.a2a.agent_turns.heartbeats import TurnHeartbeats
from shared.a2a.agent_turns.queue import TakenTurn, TurnQueue
from shared.a2a.agent_turns.task_log import TaskLog
from shared.a2a.behavior_registry import build_behaviors
from shared.a2a.tasks.task_notifier import TaskNotifier
from shared.a2a.turn_state.leases import TurnLeases
from shared.a2a.turn_state.rows import AnswerTurn
from shared.messaging.valkey import connect_valkey
from web.dependencies.services import Services
from workers.consumers import ConsumerPool

TURN_SECONDS = 30.0
THREADS = 16


@contextmanager
def answering_turns(services: Services) -> Iterator[TaskLog]:
    """Within the block, run every turn that this web process queues."""
    settings, database = services.settings, services.database
    valkey = connect_valkey(settings.redis_url)
    log, leases = TaskLog(database, TaskNotifier(valkey), services.agents.links), TurnLeases(database)
    watch = TurnHeartbeats(leases, turn_seconds=TURN_SECONDS)
    behaviors = build_behaviors(database, services.blobs, valkey, settings)
    execution, queue = TurnExecution(log, watch, behaviors.by_kind), TurnQueue(leases, slots=THREADS)

    def answer(taken: TakenTurn) -> None:
        try:
            execution.answer(taken.lease)
        finally:
            queue.release(taken)

    def publish(jobs: Sequence[Any]) -> None:
        if any(isinstance(job, AnswerTurn) for job in jobs):
            queue.wake()

    takers = ConsumerPool(queue.take, answer, limit=THREADS, name="turn")
    published, database._publish = database._publish, publish
    takers.start()
    try:
        yield log
    finally:
        watch.shut_down()
        takers.stop()
        database._publish = published
        valkey.close()
