"""What is forgotten, and what stays."""

import tracemalloc
from unittest.mock import Mock
from uuid import uuid4

import pytest

from shared import failpoints
from shared.a2a.tasks import retention
from shared.a2a.tasks.retention import purge_tasks
from shared.errors import ServiceUnavailable
from tests.shared.a2a.behaviors.agents import Agents

SCRIPT = """
rules:
  - match: {text: ask}
    steps: [{input_required: 'What?'}]
  - steps:
      - artifact: {name: log, file: {name: log.txt, media_type: text/plain, text: "All of it."}}
      - complete: Done
"""


def age(agents: Agents, task_id: str, days: int) -> None:
    agents.set(f"UPDATE tasks SET status_at = now() - interval '{days} days' WHERE id = :id", id=task_id)


def plant_key(agents: Agents, *, days: int) -> None:
    agents.set(
        "INSERT INTO send_operations (caller_id, principal_id, deployment_id, key, request_hash, turn_id, created_at)"
        f" VALUES (:id, :id, :id, '{days}', '', :id, now() - interval '{days} days')",
        id=uuid4(),
    )


def test_events_of_an_ended_task_are_purged_after_a_day(agents: Agents) -> None:
    done, asked = agents.answer("work"), agents.answer("ask")
    for task in (done, asked):
        age(agents, task.id, 2)
    before = agents.task(done.id)
    assert purge_tasks(agents.database, task_days=365, key_days=30) == 0
    assert agents.events(done.id) == []
    assert agents.task(done.id) == before
    assert agents.events(asked.id)


def test_unchanged_task_is_purged_with_its_contents_after_its_retention(agents: Agents) -> None:
    old, young = agents.answer("work"), agents.answer("work")
    held = agents.rows("SELECT * FROM file_references WHERE reference_id = :id", id=old.id)
    assert len(held) == 1
    age(agents, old.id, 366)
    age(agents, young.id, 364)
    assert purge_tasks(agents.database, task_days=365, key_days=30) == 1
    for table in ("task_messages", "task_turns", "task_events"):
        assert agents.rows(f"SELECT * FROM {table} WHERE task_id = :id", id=old.id) == []
    assert agents.rows("SELECT * FROM file_references WHERE reference_id = :id", id=old.id) == []
    assert len(agents.rows("SELECT * FROM file_references WHERE reference_id = :id", id=young.id)) == 1
    assert agents.rows("SELECT * FROM files WHERE id = :id", id=held[0]["file_id"])


def test_keys_go_when_their_time_is_over(agents: Agents) -> None:
    for days in (29, 31):
        plant_key(agents, days=days)
    purge_tasks(agents.database, task_days=365, key_days=30)
    assert [row["key"] for row in agents.rows("SELECT key FROM send_operations")] == ["29"]


def test_nothing_of_what_a_task_holds_is_read_to_purge_it(agents: Agents) -> None:
    size = 4 << 20
    for _ in range(3):
        age(agents, str(agents.say("x" * size).task_id), 366)
    tracemalloc.start()
    try:
        assert purge_tasks(agents.database, task_days=365, key_days=30) == 3
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < size


def test_tasks_that_hold_much_are_purged_one_by_one_and_in_pieces(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [agents.answer("work").id for _ in range(3)]
    for task_id in ids:
        age(agents, task_id, 366)
    batches: list[str] = []
    monkeypatch.setattr(failpoints, "hit", batches.append)
    monkeypatch.setattr(retention, "PIECE_BYTES", 1)
    assert purge_tasks(agents.database, task_days=400, key_days=30) == 0
    assert [agents.events(task_id) for task_id in ids] == [[], [], []]
    assert len(batches) == (3 + 1) + 1, "the events of each task, and each time nothing more"
    batches.clear()
    assert purge_tasks(agents.database, task_days=365, key_days=30) == 3
    assert len(batches) == 1 + (3 + 1)


def test_keys_go_whatever_becomes_of_tasks(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_key(agents, days=31)
    monkeypatch.setattr(failpoints, "hit", Mock(side_effect=ServiceUnavailable))
    with pytest.raises(ServiceUnavailable):
        purge_tasks(agents.database, task_days=365, key_days=30)
    assert agents.rows("SELECT * FROM send_operations WHERE key = '31'") == []
