"""Questions, files and cancelling, with a genuine server that nobody here wrote, over both bindings."""

import json
from collections.abc import Callable

import pytest

from shared.a2a.types import Task, TaskState
from tests.shared.a2a.behaviors.agents import Agents
from tests.shared.a2a.remote.turns import outline, said, text_of
from tests.support.agents.a2a_sdk_process import GenuineAgent
from tests.support.processes.stack import wait_until

Use = Callable[..., GenuineAgent]


@pytest.mark.parametrize("streams", [True, False])
def test_a_question_of_the_agent_is_answered_in_its_own_task(
    agents: Agents, use_teller: Use, streams: bool
) -> None:
    use_teller(streams=streams)
    asked = agents.answer("ask")
    assert (asked.status.state, said(asked)) == (TaskState.INPUT_REQUIRED, "Which one?")
    task = agents.answer("answer", task=asked)
    assert (task.status.state, text_of(task, "talk")) == (TaskState.COMPLETED, "before;after;"), said(task)
    assert outline(agents, task).count("talk") == 1
    rows = agents.rows("SELECT DISTINCT remote_task_id FROM remote_turns WHERE task_id = :id", id=task.id)
    assert len(rows) == 1


def test_contexts_of_different_callers_are_different_for_the_agent(agents: Agents, use_teller: Use) -> None:
    use_teller()
    stranger = agents.identity.actor(agents.identity.person(agents.organization_id, bound=True)).caller
    first = agents.answer("count 1", context_id="ours")
    again = agents.answer("count 1", context_id="ours")
    other = agents.answer("count 1", context_id="ours", caller=stranger)
    contexts = [_remote_context(agents, task) for task in (first, again, other)]
    assert contexts[0] == contexts[1] != contexts[2]


def test_bytes_become_files_that_the_task_refers_to(agents: Agents, use_teller: Use) -> None:
    use_teller()
    task = agents.answer("file")
    picture, numbers = task.artifacts
    assert (picture.name, picture.parts[0].filename, picture.parts[0].media_type) == (
        "Picture",
        "picture.png",
        "image/png",
    )
    assert picture.parts[0].raw is None
    [file] = agents.files()
    assert str(file["id"]) in (picture.parts[0].url or "")
    references = agents.rows(
        "SELECT kind, reference_id FROM file_references WHERE file_id = :id", id=file["id"]
    )
    assert references == [{"kind": "Task", "reference_id": task.id}]
    assert json.loads(json.dumps(numbers.parts[0].data)) == {"n": [1, 2.5, None]}


@pytest.mark.parametrize("streams", [True, False])
def test_streamed_text_beyond_the_event_limit_becomes_a_file(
    agents: Agents, use_teller: Use, streams: bool
) -> None:
    use_teller(streams=streams)
    task = agents.answer("large 40")
    [part] = task.artifacts[0].parts
    assert (task.status.state, part.text) == (TaskState.COMPLETED, None)
    [file] = agents.files()
    assert str(file["id"]) in (part.url or "")
    expected = sum(len(f"{number:04}" * 1024) for number in range(40))
    sizes = agents.rows("SELECT byte_size FROM file_versions WHERE file_id = :id", id=file["id"])
    assert sizes == [{"byte_size": expected}]


def test_cancelling_a_task_cancels_the_agents(agents: Agents, use_teller: Use) -> None:
    teller = use_teller()
    sent = agents.say("hang")
    with agents.answering(sent):
        wait_until(lambda: outline(agents, agents.task(sent.task_id)) == ["WORKING"], "the first update")
        agents.cancel(sent.task_id)
    assert outline(agents, agents.task(sent.task_id)) == ["WORKING", "CANCELED"]
    assert teller.state_of(_remote_id(agents, agents.task(sent.task_id))) == "TASK_STATE_CANCELED"


def test_stopping_worker_returns_the_turn_and_another_continues_it(agents: Agents, use_teller: Use) -> None:
    use_teller()
    sent = agents.say("count 60 0.05")
    with agents.answering(sent):
        wait_until(lambda: len(outline(agents, agents.task(sent.task_id))) > 3, "some updates")
        agents.watch.shut_down()
    assert agents.turn(sent.turn_id)["state"] == "queued"
    other = agents.another_execution()
    other.answer_turn(sent.turn_id)
    task = agents.task(sent.task_id)
    assert text_of(task, "count") == "".join(f"{n};" for n in range(60))
    assert task.status.state is TaskState.COMPLETED


def _remote_id(agents: Agents, task: Task) -> str:
    rows = agents.rows("SELECT remote_task_id FROM remote_turns WHERE task_id = :id", id=task.id)
    return str(rows[0]["remote_task_id"])


def _remote_context(agents: Agents, task: Task) -> str:
    rows = agents.rows("SELECT remote_context_id FROM remote_turns WHERE task_id = :id", id=task.id)
    return str(rows[0]["remote_context_id"])
