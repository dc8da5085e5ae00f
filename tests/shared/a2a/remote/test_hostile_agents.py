"""Agents that are away, broken, silent, endless or hostile: every task ends, and its client reads why."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from shared.a2a.remote import connection, delivery
from shared.a2a.types import Task, TaskState
from tests.shared.a2a.behaviors.agents import Agents
from tests.shared.a2a.remote.servers import ScriptedAgent, Wire, begin_or_cancel, hold, scripted_agent
from tests.shared.a2a.remote.turns import said, text_of, use_endpoint, wait_until_working

WORKING = {"state": "TASK_STATE_WORKING"}
COMPLETED = {"state": "TASK_STATE_COMPLETED"}


def task_of(wire: Wire, status: Any = COMPLETED, **more: Any) -> dict[str, Any]:
    """A task that has what was sent in its history."""
    return {"id": "t", "contextId": "c", "status": status, "history": [wire.json["message"]], **more}


def artifact(text: str) -> dict[str, Any]:
    return {"artifactId": "a", "parts": [{"text": text}]}


def update(text: str, *, append: bool = False, task_id: str = "t") -> dict[str, Any]:
    event = {"taskId": task_id, "contextId": "c", "artifact": artifact(text), "append": append}
    return {"artifactUpdate": event}


def status(state: Any = COMPLETED) -> dict[str, Any]:
    return {"statusUpdate": {"taskId": "t", "contextId": "c", "status": state}}


def answer(agents: Agents, script: Callable[[Wire], object], **how: Any) -> tuple[Task, ScriptedAgent]:
    with scripted_agent(script) as agent:
        use_endpoint(agents, agent.url, **how)
        return agents.answer("hello"), agent


def test_an_agent_that_is_away_for_a_moment_is_tried_again(agents: Agents) -> None:
    tries = iter(range(10))

    def script(wire: Wire) -> None:
        if next(tries) < 2:
            wire.answer(503, {}, "Retry-After: 1")
        else:
            wire.answer(200, {"task": task_of(wire, artifacts=[artifact("here")])})

    task, agent = answer(agents, script, streams=False)
    assert (task.status.state, text_of(task, "a")) == (TaskState.COMPLETED, "here")
    assert agent.asked == ["/message:send"] * 3


def test_an_agent_that_cannot_be_reached_fails_the_task_in_the_end(agents: Agents) -> None:
    use_endpoint(agents, "http://127.0.0.1:1")
    task = agents.answer("hello")
    assert task.status.state is TaskState.FAILED
    assert "could not be reached" in said(task)


def test_a_refusal_is_final_and_repeats_no_word_of_the_agent(agents: Agents) -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "CONTENT_TYPE_NOT_SUPPORTED"}]
    error = {"error": {"code": 400, "message": "secret", "details": details}}
    task, agent = answer(agents, lambda wire: wire.answer(400, error))
    assert task.status.state is TaskState.FAILED
    assert said(task) == "The agent refused the message (CONTENT_TYPE_NOT_SUPPORTED)."
    assert agent.asked == ["/message:stream"]


def test_message_accepted_before_the_agents_failure_is_found_and_not_resent(agents: Agents) -> None:
    taken: list[Any] = []

    def script(wire: Wire) -> None:
        if wire.path == "/message:stream":
            taken.append(wire.json["message"])
            wire.answer(500, {"error": {"code": 500, "message": "oh"}})
            return
        task = {"id": "t", "status": COMPLETED, "history": taken, "artifacts": [artifact("done")]}
        wire.answer(200, {"tasks": [task]} if wire.path.startswith("/tasks?") else task)

    task, agent = answer(agents, script)
    assert (task.status.state, text_of(task, "a")) == (TaskState.COMPLETED, "done")
    assert agent.asked.count("/message:stream") == 1


def test_a_message_that_never_arrived_is_sent_again(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "SEARCH_PAUSE_SECONDS", 0.2)
    sent: list[Any] = []

    def script(wire: Wire) -> None:
        if wire.path.startswith("/tasks?"):
            wire.answer(200, {"tasks": []})
        elif not sent:
            sent.append(wire.json["message"]["messageId"])  # and the connection breaks
        else:
            sent.append(wire.json["message"]["messageId"])
            wire.answer(200, {"task": task_of(wire)})

    task, agent = answer(agents, script)
    assert task.status.state is TaskState.COMPLETED
    assert (len(sent), len(set(sent))) == (2, 1)
    assert agent.asked.count("/tasks") == 2


@pytest.mark.parametrize("resends", [False, True])
def test_agent_without_task_list_gets_a_resend_only_if_allowed(agents: Agents, resends: bool) -> None:
    sent: list[Any] = []

    def script(wire: Wire) -> None:
        if "message:" not in wire.path:
            wire.answer(404, {})
            return
        sent.append(wire.json)
        if len(sent) > 1:
            wire.answer(200, {"task": task_of(wire)})

    task, _ = answer(agents, script, resends=resends)
    assert len(sent) == 1 + resends
    assert task.status.state is (TaskState.COMPLETED if resends else TaskState.FAILED)
    assert resends or "may have been received" in said(task)


def test_a_stream_that_breaks_is_completed_from_the_task(agents: Agents) -> None:
    def script(wire: Wire) -> None:
        if wire.path == "/message:stream":
            wire.begin_stream()
            wire.event({"task": {"id": "t", "status": WORKING}})
            wire.event(update("one "))
            wire.event(update("two ", append=True))
        else:
            whole = [{"artifactId": "a", "parts": [{"text": "one "}, {"text": "two "}, {"text": "three"}]}]
            wire.answer(200, {"id": "t", "status": COMPLETED, "artifacts": whole})

    task, _ = answer(agents, script)
    assert (task.status.state, text_of(task, "a")) == (TaskState.COMPLETED, "one two three")


def test_a_silent_stream_is_left_and_the_task_read(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "IDLE_SECONDS", 0.5)

    def script(wire: Wire) -> None:
        if wire.path == "/message:stream":
            wire.begin_stream()
            wire.event({"task": {"id": "t", "status": WORKING}})
            hold(20)
        elif wire.path.endswith(":subscribe"):
            wire.answer(400, {})
        else:
            wire.answer(200, {"id": "t", "status": COMPLETED, "artifacts": [artifact("read")]})

    task, _ = answer(agents, script)
    assert (task.status.state, text_of(task, "a")) == (TaskState.COMPLETED, "read")


def test_ids_of_later_events_are_not_believed(agents: Agents) -> None:
    def script(wire: Wire) -> None:
        wire.begin_stream()
        wire.event({"task": {"id": "t", "status": WORKING}})
        wire.event(update("mine", task_id="another"))
        wire.event(status())

    task, _ = answer(agents, script)
    assert text_of(task, "a") == "mine"
    bound = agents.rows("SELECT remote_task_id FROM remote_turns WHERE task_id = :id", id=task.id)
    assert bound == [{"remote_task_id": "t"}]


@pytest.mark.parametrize(
    "event",
    [
        b"not json",
        b'{"task": 5}',
        b'{"task": {"id": "t", "status": {"state": "NO_SUCH_STATE"}}}',
        b"{}",
        b"[" * 100_000,
        b'{"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "\\ud800"}]}}',
        b'{"statusUpdate": {"status": {"state": "TASK_STATE_WORKING"}}}',
    ],
)
def test_an_answer_that_is_not_the_protocols_fails_the_task(agents: Agents, event: bytes) -> None:
    def script(wire: Wire) -> None:
        wire.begin_stream()
        wire.write(b"data: " + event + b"\n\n")

    task, _ = answer(agents, script)
    assert task.status.state is TaskState.FAILED
    assert "does not conform to the protocol" in said(task)


def test_an_endless_answer_is_cut_off(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAXIMUM_EVENT_BYTES", 1 << 20)

    def script(wire: Wire) -> None:
        wire.begin_stream()
        while True:
            wire.write(b"data: " + b"x" * 65536)

    task, _ = answer(agents, script)
    assert task.status.state is TaskState.FAILED
    assert "exceeds the size limit" in said(task)


def test_a_stream_that_never_ends_is_ended_by_cancelling(agents: Agents) -> None:
    cancelled = threading.Event()

    def script(wire: Wire) -> None:
        if begin_or_cancel(wire):
            cancelled.set()
            return
        while not cancelled.wait(0.05):
            wire.write(b": ping\n\n")

    with scripted_agent(script) as agent:
        use_endpoint(agents, agent.url)
        sent = agents.say("hello")
        with agents.answering(sent):
            wait_until_working(agents, sent.task_id)
            agents.cancel(sent.task_id)
        assert cancelled.wait(60)
    assert agents.task(sent.task_id).status.state is TaskState.CANCELED


def test_documents_of_the_protocol_are_read_to_the_digit(agents: Agents) -> None:
    whole = (
        '{"task": {"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": [{"artifactId": "a",'
    )
    whole += ' "parts": [{"data": {"n": 9007199254740993, "d": 1.10}}]}]}}'

    def script(wire: Wire) -> None:
        wire.begin_stream()
        wire.write(f"data: {whole}\n\n".encode())

    task, _ = answer(agents, script)
    events = agents.rows(
        "SELECT CAST(event AS text) AS event FROM task_events WHERE task_id = :id AND kind = 'artifact'",
        id=task.id,
    )
    assert '{"n":9007199254740993,"d":1.10}' in events[0]["event"]
    assert json.loads(events[0]["event"])["artifactUpdate"]["append"] is False


@pytest.mark.parametrize("length", [0, 100])
def test_agent_with_a_truncated_history_gets_no_resend(agents: Agents, length: int) -> None:
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "so far"}]}
    sent: list[Any] = []

    def script(wire: Wire) -> None:
        if "message:" in wire.path:
            sent.append(wire.json)  # and the connection breaks
        else:
            wire.answer(200, {"tasks": [{"id": "t", "status": WORKING, "history": [message] * length}]})

    task, _ = answer(agents, script)
    assert (task.status.state, len(sent)) == (TaskState.FAILED, 1)
    assert "may have been received" in said(task)
