"""Workers die at every step of a turn that an agent elsewhere answers: nothing is lost, and nothing is said twice."""

import signal

import pytest

from shared.a2a.types import TaskState
from tests.shared.a2a.behaviors.agents import Agents
from tests.shared.a2a.behaviors.dying_worker import let_die
from tests.shared.a2a.remote.turns import counted, outline, said, text_of, use_endpoint
from tests.support.agents.a2a_sdk_process import GenuineAgent, genuine_agent

POINTS = (
    "turn.claimed",
    "remote.marked",
    "remote.heard",
    "remote.bound",
    "turn.before_append=0",
    "turn.appended=0",
    "turn.before_append=4",
    "turn.appended=9",
    "turn.before_append=21",
)
COUNT = "count 20 0.1"


@pytest.mark.parametrize("binding", ["http+json", "jsonrpc"])
def test_another_worker_goes_on_exactly_where_one_died(
    agents: Agents, teller: GenuineAgent, database_url: str, binding: str
) -> None:
    use_endpoint(agents, teller.url, binding=binding)
    before = len(teller.sent())
    sent = [agents.say(COUNT) for _ in POINTS]
    deaths = [(one.turn_id, point) for one, point in zip(sent, POINTS, strict=True)]
    assert let_die(agents.settings, database_url, deaths) == [signal.SIGKILL] * len(POINTS)
    for task, point in zip(agents.recover(sent), POINTS, strict=True):
        assert (task.status.state, said(task)) == (TaskState.COMPLETED, "Counted"), point
        assert text_of(task, "count") == counted(20), point
        words = outline(agents, task)
        assert words.count("WORKING") == 1, point
        assert words.count("count") == 1, (point, words)
    assert sorted(teller.received(before)) == sorted(str(one.turn_id) for one in sent)


def test_repeated_worker_deaths_do_not_fail_a_turn_with_progress(
    agents: Agents, teller: GenuineAgent, database_url: str
) -> None:
    use_endpoint(agents, teller.url)
    sent = agents.say("count 50 0.1")
    for _ in range(4):
        assert let_die(agents.settings, database_url, [(sent.turn_id, "turn.appended=1")]) == [signal.SIGKILL]
        agents.set("UPDATE task_turns SET lease_until = now() - interval '1 second' WHERE state = 'running'")
        agents.sweep()
    [task] = agents.recover([sent])
    assert (task.status.state, text_of(task, "count")) == (TaskState.COMPLETED, counted(50)), said(task)


def test_an_agent_that_forgot_its_task_in_a_restart_fails_it(agents: Agents, database_url: str) -> None:
    with genuine_agent() as forgetful:
        use_endpoint(agents, forgetful.url)
        sent = agents.say("hang")
        let_die(agents.settings, database_url, [(sent.turn_id, "turn.appended=0")])
        forgetful.kill()
        forgetful.start()
        [task] = agents.recover([sent])
    assert task.status.state is TaskState.FAILED
    assert "restarted" in said(task)


def test_agent_without_progress_after_a_restart_fails_its_task(
    agents: Agents, administrator_url: str
) -> None:
    with genuine_agent(store=administrator_url) as agent, agent.prepared_restart() as restart:
        use_endpoint(agents, agent.url)
        sent = agents.say("hang")
        with agents.answering(sent):
            agent.wait_for_a_task()
            restart()
    task = agents.task(sent.task_id)
    assert task.status.state is TaskState.FAILED
    assert "no progress" in said(task)
