"""Turns that end before their agent has are cancelled there, and links of the agent's lose their secret."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from shared.a2a.agent_turns.execution import REVOKED, TOO_LONG
from shared.a2a.file_links import FileLinks
from shared.a2a.remote.cancellation import RemoteCancellation
from shared.a2a.remote.connection import AgentConnector
from shared.a2a.remote.endpoints import remove_endpoint
from shared.a2a.types import Task, TaskState
from shared.identity.access.authorization import OPERATOR
from shared.identity.directory.deployments import disable_deployment
from tests.shared.a2a.behaviors.agents import Agents
from tests.shared.a2a.remote.servers import Wire, begin_or_cancel, hold, scripted_agent
from tests.shared.a2a.remote.turns import said, use_endpoint, wait_until_working

RAW = {"artifactId": "a", "parts": [{"raw": "AAEC", "filename": "a.bin"}]}


def test_turn_beyond_its_time_limit_is_cancelled_at_the_agent(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents.watch, "_turn_seconds", 0.5)
    task, asked = _end_while_it_hangs(agents, lambda: None)
    assert (task.status.state, said(task)) == (TaskState.FAILED, TOO_LONG)
    assert asked.count("/tasks/t:cancel") == 1


def test_turn_of_a_disabled_agent_is_cancelled_at_the_agent(agents: Agents) -> None:
    def disable() -> None:
        with agents.database.transaction() as session:
            disable_deployment(session, actor=OPERATOR, deployment_id=agents.deployment.deployment.id)

    task, asked = _end_while_it_hangs(agents, disable)
    assert (task.status.state, said(task)) == (TaskState.FAILED, REVOKED)
    assert asked.count("/tasks/t:cancel") == 1


def test_turn_of_a_deleted_endpoint_fails_without_further_requests(agents: Agents) -> None:
    def remove() -> None:
        with agents.database.transaction() as session:
            remove_endpoint(session, actor=OPERATOR, deployment_id=agents.deployment.deployment.id)

    task, asked = _end_while_it_hangs(agents, remove)
    assert (task.status.state, said(task)) == (TaskState.FAILED, REVOKED)
    assert asked == ["/message:stream"]


def test_agents_link_to_its_own_file_is_stored_without_its_secret(agents: Agents) -> None:
    first = _answer_with(agents, RAW)
    link = _link_to(agents, first)
    second = _answer_with(agents, {"artifactId": "a", "parts": [{"url": link}]})
    assert second.artifacts[0].parts[0].url == first.artifacts[0].parts[0].url
    [file] = agents.files()
    references = agents.rows("SELECT reference_id FROM file_references WHERE file_id = :id", id=file["id"])
    assert {row["reference_id"] for row in references} == {first.id, second.id}


def _answer_with(agents: Agents, artifact: Any) -> Task:
    """Have an agent answer with an artifact."""
    task = {"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": [artifact]}
    with scripted_agent(lambda wire: wire.answer(200, {"task": task})) as agent:
        use_endpoint(agents, agent.url)
        return agents.answer("hello")


def _link_to(agents: Agents, task: Task) -> str:
    """The link that a reader of the task gets."""
    links = FileLinks(agents.database, agents.settings)
    wire = links.with_links(UUID(task.id), task.to_wire())
    link: str = wire["artifacts"][0]["parts"][0]["url"]
    assert "grant=" in link
    return link


def _end_while_it_hangs(agents: Agents, act: Callable[[], object]) -> tuple[Task, list[str]]:
    """Have an agent say nothing more, do something, and give the task once it has ended."""

    def script(wire: Wire) -> None:
        if not begin_or_cancel(wire):
            hold(20)

    with scripted_agent(script) as agent:
        use_endpoint(agents, agent.url)
        sent = agents.say("hello")
        with agents.answering(sent):
            wait_until_working(agents, sent.task_id)
            act()
        connector = AgentConnector(agents.database, agents.settings)
        RemoteCancellation(agents.database, connector).sweep()
        return agents.task(sent.task_id), agent.asked
