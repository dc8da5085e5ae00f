"""A genuine server that nobody here wrote answers messages, over both bindings, with a stream and without."""

from collections.abc import Callable

import pytest

from shared.a2a.types import TaskState
from tests.shared.a2a.behaviors.agents import Agents
from tests.shared.a2a.remote.turns import counted, outline, said, text_of
from tests.support.agents.a2a_sdk_process import GenuineAgent

Use = Callable[..., GenuineAgent]


@pytest.mark.parametrize("streams", [True, False])
def test_a_message_is_answered_by_the_agents_own_server(
    agents: Agents, use_teller: Use, streams: bool
) -> None:
    use_teller(streams=streams)
    task = agents.answer("count 5 0.01")
    assert task.status.state is TaskState.COMPLETED, said(task)
    assert (text_of(task, "count"), said(task)) == (counted(5), "Counted")


def test_every_event_of_a_stream_is_an_event_of_the_task(agents: Agents, use_teller: Use) -> None:
    use_teller()
    task = agents.answer("count 3")
    assert outline(agents, task) == ["WORKING", "count", "count+", "count+", "COMPLETED"]


def test_an_agent_that_answers_with_a_message_makes_no_task(agents: Agents, use_teller: Use) -> None:
    use_teller()
    sent = agents.say("message")
    agents.execution.answer_turn(sent.turn_id)
    shown = agents.rows("SELECT is_visible, state FROM tasks WHERE id = :id", id=sent.task_id)
    assert shown == [{"is_visible": False, "state": "TASK_STATE_COMPLETED"}]


def test_an_agent_that_fails_says_why_itself(agents: Agents, use_teller: Use) -> None:
    use_teller()
    task = agents.answer("fail")
    assert (task.status.state, said(task)) == (TaskState.FAILED, "Not today")


def test_what_breaks_within_the_agent_is_not_told(agents: Agents, use_teller: Use) -> None:
    use_teller()
    task = agents.answer("raise")
    assert task.status.state is TaskState.FAILED
    assert "secret" not in said(task)


def test_a_request_carries_a_token_and_the_attribution_of_its_turn(agents: Agents, use_teller: Use) -> None:
    teller = use_teller()
    before = len(teller.seen())
    sent = agents.say("count 1", extensions=["https://example.com/x/v1"])
    agents.execution.answer_turn(sent.turn_id)
    headers = teller.seen()[before]["headers"]
    assert headers["a2a-version"] == "1.0"
    assert headers["a2a-extensions"] == "https://example.com/x/v1"
    assert headers["authorization"].startswith("Bearer ey")
    assert headers["service-usage-attribution"].startswith("ey")
    assert headers["idempotency-key"] == str(sent.turn_id)
