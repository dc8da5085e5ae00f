"""How much of what was said is read at once."""

from typing import Any

import pytest
import sqlalchemy as sa

from shared.a2a.agent_turns import turn_reader
from shared.a2a.tasks import snapshots
from shared.a2a.tasks.listing import TaskQuery, list_tasks
from shared.a2a.types import Task
from shared.db.database import StatementSession
from tests.shared.a2a.behaviors.agents import Agents
from tests.support.data.query_plans import Statement, rows_read

COPIES = """
WITH copies AS (
    INSERT INTO tasks (id, context_id, organization_id, deployment_id, caller_id, principal_id, state, status_at,
        is_visible, last_message, created_at)
    SELECT gen_random_uuid(), context_id, organization_id, deployment_id, caller_id, principal_id, state, status_at,
        is_visible, last_message, created_at - n * interval '1 second'
    FROM tasks, generate_series(1, 3000) n WHERE tasks.id = :id RETURNING id
)
INSERT INTO task_messages (task_id, number, message)
SELECT copies.id, number, message FROM copies, task_messages WHERE task_messages.task_id = :id
"""
"""Of one task, in its context, before it."""
SCRIPT = "rules: [{steps: [{input_required: next}, {input_required: next}, {complete: Done}]}]"


def long_talk(agents: Agents) -> Task:
    """A task of three messages of a thousand characters, each answered with a short one."""
    task = agents.answer("a" * 1000)
    for text in ("b" * 1000, "c" * 1000):
        task = agents.answer(text, task=task)
    return task


def said(task: Task) -> list[str]:
    return [(message.parts[0].text or "")[:4] for message in task.history]


def test_the_oldest_messages_are_left_out_of_what_would_be_too_large(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = long_talk(agents)
    assert said(task) == ["aaaa", "next", "bbbb", "next", "cccc"]
    monkeypatch.setattr(snapshots, "HISTORY_BYTES", 3000)
    assert said(agents.task(task.id)) == ["next", "bbbb", "next", "cccc"]


def test_a_list_gives_all_its_tasks_whatever_was_said_in_them(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier, later = long_talk(agents), long_talk(agents)
    monkeypatch.setattr(snapshots, "HISTORY_BYTES", 6500)
    with agents.database.autocommit() as session:
        page = list_tasks(session, agents.scope(), TaskQuery(page_size=2))
    assert [task.id for task in page.tasks] == [later.id, earlier.id]
    assert [said(task) for task in page.tasks] == [["aaaa", "next", "bbbb", "next", "cccc"], ["next", "cccc"]]
    assert all(task.status.message is not None for task in page.tasks)


def test_the_agent_is_given_the_newest_of_a_long_talk(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = long_talk(agents).context_id
    monkeypatch.setattr(turn_reader, "HISTORY_BYTES", 2000)
    claimed = agents.log.claim(agents.say("and now", context_id=context).turn_id)
    assert claimed is not None
    texts = [message.parts[0].text or "" for message in claimed.turn.history()]
    assert [text[:4] for text in texts] == ["next", "cccc", "Done"]


def test_a_long_context_costs_no_more_than_what_is_read_of_it(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents.set(COPIES, id=agents.say("one", context_id="long").task_id)
    with agents.database.engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").execute(
            sa.text("VACUUM ANALYZE tasks, task_messages")
        )
    claimed = agents.log.claim(agents.say("and now", context_id="long").turn_id)
    assert claimed is not None
    asked: list[Statement] = []
    fetch_all = StatementSession.fetch_all

    def keep(session: StatementSession, statement: str, values: dict[str, Any]) -> Any:
        asked.append(Statement(text=statement, parameters=values))
        return fetch_all(session, statement, values)

    monkeypatch.setattr(StatementSession, "fetch_all", keep)
    assert len(claimed.turn.history()) == turn_reader.HISTORY_LIMIT
    rows, plan = rows_read(agents.database, asked[0])
    assert rows <= 4 * turn_reader.HISTORY_LIMIT, plan
