"""A worker that dies: answers turns, each in a process of its own that ends at a named point.

`python -m tests.shared.a2a.behaviors.dying_worker`, with a JSON document as its argument: `settings`, and
`deaths` as pairs of a turn's id and a point (`shared/failpoints.py`). Prints the signals by which the processes ended.
"""

import json
import os
import sys
from collections.abc import Sequence
from uuid import UUID

from shared import failpoints
from shared.a2a.agent_turns import task_log
from shared.a2a.behavior_registry import build_behaviors
from shared.a2a.behaviors import model_backed
from shared.a2a.tasks.task_notifier import TaskNotifier
from shared.config.settings import Settings
from shared.db.database import Database
from shared.messaging.valkey import connect_valkey
from tests.support.agents.chosen_turns import make_execution
from tests.support.processes import process_forks
from tests.support.servers.stores import open_any_store


def let_die(settings: Settings, database_url: str, deaths: Sequence[tuple[UUID, str]]) -> list[int]:
    """Let a worker die for each turn at its point; give the signals."""
    document = {
        "settings": {
            "database_url": database_url,
            "redis_url": settings.redis_url,
            "blob_store": settings.blob_store,
            "base_url": settings.base_url,
            "encryption_keys": settings.encryption_keys[0].get_secret_value(),
            "models_config": str(settings.models_config) if settings.models_config else None,
            "a2a_inline_artifact_bytes": settings.a2a_inline_artifact_bytes,
            "egress_allow_private": settings.egress_allow_private,
            "egress_allow_http": settings.egress_allow_http,
        },
        "deaths": [(str(turn_id), point) for turn_id, point in deaths],
    }
    status, said = process_forks.run("tests.shared.a2a.behaviors.dying_worker", json.dumps(document))
    assert status == 0, said
    signals: list[int] = json.loads(said.splitlines()[-1])
    return signals


def main() -> None:
    document = json.loads(sys.argv[1])
    settings = Settings(**document["settings"])
    children = []
    for turn_id, point in document["deaths"]:
        child = os.fork()  # nothing is connected and no thread runs yet
        if child == 0:
            failpoints.arm(point)
            _answer(settings, UUID(turn_id))
            os._exit(0)
        children.append(child)
    print(json.dumps([os.WTERMSIG(os.waitpid(child, 0)[1]) for child in children]))


def _answer(settings: Settings, turn_id: UUID) -> None:
    model_backed.COALESCING_SECONDS = 0.0
    task_log.BATCH_SECONDS = 0.0
    database, valkey = Database(settings.database_url), connect_valkey(settings.redis_url)
    behaviors = build_behaviors(database, open_any_store(settings), valkey, settings)
    *_, execution = make_execution(database, TaskNotifier(valkey), behaviors, settings)
    execution.answer_turn(turn_id)


if __name__ == "__main__":
    main()
