"""Answer agents' turns in this process as soon as they are queued, on threads, as workers would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from shared.a2a.behaviors.registry import build_behaviors
from shared.a2a.execution import TurnExecution
from shared.a2a.jobs import AnswerTurn
from shared.a2a.task_log import TaskLog
from shared.a2a.turn_watch import TurnWatch
from shared.a2a.watching import TaskHints
from shared.files.stores import open_configured_store
from shared.valkey import connect_valkey
from web.services import Services

TURN_SECONDS = 30.0


@contextmanager
def answering_turns(services: Services) -> Iterator[TaskLog]:
    """Answer every turn that this front queues, within the block."""
    settings, database = services.settings, services.database
    valkey = connect_valkey(settings.redis_url)
    log = TaskLog(database, TaskHints(valkey))
    behaviors = build_behaviors(database, open_configured_store(settings), valkey, settings)
    execution = TurnExecution(log, TurnWatch(log, turn_seconds=TURN_SECONDS), behaviors.by_kind)
    published = database._publish
    with ThreadPoolExecutor(16) as threads:

        def publish(jobs: Sequence[Any]) -> None:
            for job in jobs:
                if isinstance(job, AnswerTurn):
                    threads.submit(execution.answer, UUID(job.turn_id))

        database._publish = publish
        try:
            yield log
        finally:
            database._publish = published
            valkey.close()
