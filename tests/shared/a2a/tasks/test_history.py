"""How much of what was said is read at once."""

import pytest

from shared.a2a.tasks import snapshots
from shared.a2a.tasks.listing import TaskQuery, list_tasks
from shared.a2a.turns import reading
from shared.a2a.types import Task
from tests.shared.a2a.behaviors.agents import Agents

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
    monkeypatch.setattr(reading, "HISTORY_BYTES", 2000)
    claimed = agents.log.claim(agents.say("and now", context_id=context).turn_id)
    assert claimed is not None
    texts = [message.parts[0].text or "" for message in claimed.turn.history()]
    assert [text[:4] for text in texts] == ["next", "cccc", "Done"]
