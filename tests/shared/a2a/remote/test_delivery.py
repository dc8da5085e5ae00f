"""What a message costs that is sent on, and that nothing is noted as sent which cannot have left."""

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from shared.a2a.remote import behavior
from shared.a2a.remote.connection import AgentConnector
from shared.a2a.remote.endpoints import find_endpoint
from shared.a2a.tasks.submission import AcceptedMessage
from shared.a2a.types import TaskState
from shared.a2a.updates import BehaviorKind
from shared.db.database import StatementSession
from shared.db.statements import Prepared
from shared.egress.errors import FetchTimedOut
from shared.errors import ServiceUnavailable
from tests.shared.a2a.behaviors.agents import Agents
from tests.shared.a2a.remote.servers import Wire, scripted_agent
from tests.shared.a2a.remote.test_hostile_agents import status, task_of, update
from tests.shared.a2a.remote.turns import use_endpoint
from tests.support.data.statements import own_statements
from tests.support.processes.stack import wait_until

SUBMITTED = {"state": "TASK_STATE_SUBMITTED"}


def complete(wire: Wire) -> None:
    """Answer as servers do that stream: with the task, then with its end."""
    wire.begin_stream()
    wire.event({"task": task_of(wire, SUBMITTED)})
    wire.event(status())


def noted(agents: Agents, sent: AcceptedMessage) -> list[bool]:
    """Whether the turn's row says that its message may have left, if it has a row."""
    found = agents.rows(
        "SELECT sent_at IS NOT NULL AS is_sent FROM remote_turns WHERE turn_id = :id", id=sent.turn_id
    )
    return [row["is_sent"] for row in found]


def test_a_message_takes_four_statements_one_request_and_no_thread(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    start = threading.Thread.start

    def note(thread: threading.Thread) -> None:
        if threading.current_thread() is threading.main_thread():
            begun.append(thread.name)
        start(thread)

    with scripted_agent(complete) as agent:
        use_endpoint(agents, agent.url)
        agents.answer("hello")
        sent = agents.say("hello")
        monkeypatch.setattr(threading.Thread, "start", note)
        with own_statements(agents.database) as seen:
            agents.execution.answer_turn(sent.turn_id)
    taken = [statement for statement in seen if "signing_keys" not in statement]  # kept for seconds elsewhere
    claim, opening, binding, recording = taken
    assert "UPDATE task_turns" in claim
    assert "INSERT INTO remote_turns" in opening
    assert "SET remote_task_id" in binding
    assert "record_updates" in recording
    assert agent.asked == ["/message:stream"] * 2
    assert begun == []


def test_an_update_more_takes_one_statement_more_at_the_most(agents: Agents) -> None:
    def script(wire: Wire) -> None:
        wire.begin_stream()
        wire.event({"task": task_of(wire, {"state": "TASK_STATE_WORKING"})})
        wire.event(update("more"))
        wire.event(status())

    with scripted_agent(script) as agent:
        use_endpoint(agents, agent.url)
        sent = agents.say("hello")
        with own_statements(agents.database) as seen:
            agents.execution.answer_turn(sent.turn_id)
    assert len([statement for statement in seen if "record_updates" in statement]) <= 3
    assert agents.task(sent.task_id).status.state is TaskState.COMPLETED


def test_a_worker_that_is_ending_notes_nothing_as_sent(agents: Agents) -> None:
    with scripted_agent(complete) as agent:
        use_endpoint(agents, agent.url)
        sent = agents.say("hello")
        agents.watch.shut_down()
        agents.execution.answer_turn(sent.turn_id)
        assert noted(agents, sent) == []
        agents.another_execution().answer_turn(sent.turn_id)
    assert agent.asked == ["/message:stream"]
    assert agents.task(sent.task_id).status.state is TaskState.COMPLETED


def test_turn_that_ends_before_sending_is_not_marked_as_sent(agents: Agents) -> None:
    with scripted_agent(complete) as agent:
        use_endpoint(agents, agent.url)
        sent = agents.say("hello")
        claimed = agents.log.claim(sent.turn_id)
        assert claimed is not None
        turn = replace(claimed.turn, is_cancelled=lambda: bool(noted(agents, sent)))
        assert list(agents.behaviors.by_kind[BehaviorKind.REMOTE].run(turn)) == []
    assert noted(agents, sent) == [False]
    assert agent.asked == []


def test_message_waits_for_a_new_endpoints_card_and_stays_unsent(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(behavior, "CARD_POLL_SECONDS", 0.02)
    with scripted_agent(complete) as agent:
        use_endpoint(agents, agent.url)
        agents.set("UPDATE deployment_endpoints SET binding = NULL, interface_url = NULL")
        sent = agents.say("hello")
        with agents.answering(sent):
            wait_until(lambda: agents.turn(sent.turn_id)["state"] == "running", "the turn runs")
            time.sleep(0.1)
            assert noted(agents, sent) == []
            agents.set(
                "UPDATE deployment_endpoints SET binding = 'http+json', interface_url = :url", url=agent.url
            )
    assert agents.task(sent.task_id).status.state is TaskState.COMPLETED
    assert agent.asked == ["/message:stream"]


def test_an_answer_that_drips_is_ended_when_its_time_is_over(agents: Agents) -> None:
    over = threading.Event()

    def script(wire: Wire) -> None:
        wire.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n")
        with suppress(OSError):
            while not over.wait(0.01):
                wire.write(b" ")

    with scripted_agent(script) as agent:
        use_endpoint(agents, agent.url)
        with agents.database.autocommit() as session:
            endpoint = find_endpoint(session, agents.deployment.deployment.id)
        assert endpoint is not None
        connection = AgentConnector(agents.database, agents.settings).connect(endpoint)
        with pytest.raises(FetchTimedOut):
            connection.ask(connection.binding.get("t"), seconds=0.2)
        over.set()


def test_step_with_a_lost_response_is_repeated_by_the_same_worker(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[Prepared] = []
    fetch_one = StatementSession.fetch_one

    def fetch_unheard(session: StatementSession, statement: str | Prepared, values: Mapping[str, Any]) -> Any:
        row = fetch_one(session, statement, values)
        if (
            isinstance(statement, Prepared)
            and "remote_turns SET remote_task_id" in statement.text
            and not lost
        ):
            lost.append(statement)
            raise ServiceUnavailable
        return row

    monkeypatch.setattr(StatementSession, "fetch_one", fetch_unheard)
    with scripted_agent(complete) as agent:
        use_endpoint(agents, agent.url)
        sent = agents.say("hello")
        agents.execution.answer_turn(sent.turn_id)
        assert len(agent.asked) == 1
    assert lost
    assert agents.task(sent.task_id).status.state is TaskState.COMPLETED
    assert agents.turn(sent.turn_id)["attempts"] == 1
