"""What is done at the agent for turns that have ended with us: by the sweep, until the agent has heard or too late."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.valkey import EmbeddedValkey
from shared.a2a.remote import cancellation as cancelling
from shared.a2a.remote.cancellation import BATCH_SIZE, THREADS, RemoteCancellation
from shared.a2a.remote.connection import AgentConnector
from shared.a2a.remote.task_recovery import message_id_of
from shared.a2a.remote.turn_rows import SentTurns
from shared.a2a.tasks.submission import AcceptedMessage
from shared.db.database import Database
from shared.runtime.batches import budget
from tests.shared.a2a.behaviors.agents import Agents, make_agents
from tests.shared.a2a.remote.servers import ScriptedAgent, Wire, scripted_agent
from tests.shared.a2a.remote.turns import use_endpoint

CANCELED = {"id": "t", "status": {"state": "TASK_STATE_CANCELED"}}


class ListingAgent:
    """An agent that lists these tasks, and answers with this status."""

    def __init__(self) -> None:
        self.tasks: list[Any] = []
        self.status = 200

    def answer(self, wire: Wire) -> None:
        is_list = wire.path.partition("?")[0] == "/tasks"
        wire.answer(self.status, {"tasks": self.tasks} if is_list else CANCELED)


@pytest.fixture
def listing() -> ListingAgent:
    return ListingAgent()


@pytest.fixture
def agent(agents: Agents, listing: ListingAgent) -> Iterator[ScriptedAgent]:
    with scripted_agent(listing.answer) as agent:
        use_endpoint(agents, agent.url)
        yield agent


@pytest.fixture
def other(database: Database, valkey_server: EmbeddedValkey, tmp_path: Path) -> Iterator[Agents]:
    """Another organization and its deployment."""
    local = {"egress_allow_private": True, "egress_allow_http": True}
    with make_agents(database, valkey_server.url, tmp_path / "other", **local) as other:
        yield other


@pytest.fixture
def cancellation(agents: Agents) -> RemoteCancellation:
    return RemoteCancellation(agents.database, AgentConnector(agents.database, agents.settings))


def cancel_while_sent(agents: Agents, *, remote_task_id: str | None) -> AcceptedMessage:
    """Cancel the turn of a worker that died after it had sent the message."""
    sent = agents.say("hello")
    claimed = agents.log.claim(sent.turn_id)
    assert claimed is not None
    rows = SentTurns(agents.database)
    rows.mark_sent(claimed.turn)
    if remote_task_id is not None:
        rows.bind(claimed.turn, remote_task_id, None)
    agents.set("UPDATE tasks SET is_visible = true WHERE id = :id", id=sent.task_id)
    agents.cancel(sent.task_id)
    return sent


def end_while_sent(agents: Agents, outcome: str) -> AcceptedMessage:
    """Have a turn that its agent has taken end so."""
    sent = agents.say("hello")
    row = {"id": sent.turn_id, "task_id": sent.task_id}
    agents.set(
        "INSERT INTO remote_turns (turn_id, task_id, sent_at, remote_task_id) VALUES (:id, :task_id, now(), 't')",
        **row,
    )
    agents.set(
        "UPDATE task_turns SET state = 'done', outcome = :outcome WHERE id = :id", outcome=outcome, **row
    )
    return sent


def task_with(sent: AcceptedMessage) -> Any:
    """The agent's task of a message."""
    message = {"messageId": message_id_of(sent.turn_id), "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    return {"id": "t", "status": {"state": "TASK_STATE_WORKING"}, "history": [message]}


def let_pass(agents: Agents, sent: AcceptedMessage, minutes: int) -> None:
    """Have the turn's end be so long ago."""
    agents.set(
        "UPDATE tasks SET status_at = status_at - make_interval(mins => CAST(:minutes AS integer)) WHERE id = :id",
        minutes=minutes,
        id=sent.task_id,
    )


def is_open(agents: Agents, sent: AcceptedMessage) -> bool:
    [row] = agents.rows("SELECT is_open FROM remote_turns WHERE turn_id = :id", id=sent.turn_id)
    return bool(row["is_open"])


def test_the_sweep_cancels_what_a_dead_worker_could_not(
    agents: Agents, agent: ScriptedAgent, cancellation: RemoteCancellation
) -> None:
    cancel_while_sent(agents, remote_task_id="t")
    cancellation.sweep()
    cancellation.sweep()
    assert agent.asked == ["/tasks/t:cancel"]


def test_a_task_that_the_agent_lists_only_later_is_cancelled(
    agents: Agents, agent: ScriptedAgent, listing: ListingAgent, cancellation: RemoteCancellation
) -> None:
    sent = cancel_while_sent(agents, remote_task_id=None)
    cancellation.sweep()
    assert is_open(agents, sent)
    let_pass(agents, sent, minutes=2)
    listing.tasks = [task_with(sent)]
    cancellation.sweep()
    cancellation.sweep()
    assert agent.asked == ["/tasks", "/tasks", "/tasks/t:cancel"]


def test_search_for_a_message_in_the_agents_tasks_ends_after_minutes(
    agents: Agents, agent: ScriptedAgent, cancellation: RemoteCancellation
) -> None:
    sent = cancel_while_sent(agents, remote_task_id=None)
    let_pass(agents, sent, minutes=4)
    cancellation.sweep()
    cancellation.sweep()
    assert agent.asked == ["/tasks"]


def test_cancellation_at_a_failing_agent_is_retried_for_an_hour(
    agents: Agents, agent: ScriptedAgent, listing: ListingAgent, cancellation: RemoteCancellation
) -> None:
    listing.status = 503
    sent = cancel_while_sent(agents, remote_task_id="t")
    agents.set("UPDATE remote_turns SET created_at = now() - interval '2 hours'")  # it took long
    cancellation.sweep()
    assert is_open(agents, sent)
    let_pass(agents, sent, minutes=61)
    cancellation.sweep()
    assert not is_open(agents, sent)
    assert agent.asked == ["/tasks/t:cancel"] * 2


def test_turns_that_were_answered_are_closed_in_one_sweep_however_many(
    agents: Agents, agent: ScriptedAgent, cancellation: RemoteCancellation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancelling, "CLOSED_AT_ONCE", 2)
    turns = [end_while_sent(agents, "answered") for _ in range(5)]
    with budget():
        assert cancellation.sweep() == len(turns)
    assert not any(is_open(agents, sent) for sent in turns)
    assert not agent.asked


def test_an_agent_that_does_not_answer_keeps_no_other_waiting(
    agents: Agents, other: Agents, cancellation: RemoteCancellation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancelling, "CANCEL_SECONDS", 0.2)
    over = threading.Event()
    with (
        scripted_agent(lambda _: over.wait(60)) as hung,
        scripted_agent(lambda wire: wire.answer(200, CANCELED)) as prompt,
    ):
        use_endpoint(agents, hung.url)
        use_endpoint(other, prompt.url)
        waiting = [end_while_sent(agents, "canceled") for _ in range(BATCH_SIZE * 2)]
        heard = end_while_sent(other, "canceled")
        with budget(seconds=0.0) as given:
            cancellation.sweep()
        assert given.is_truncated  # and so is sent for again
        assert (prompt.asked, is_open(other, heard)) == (["/tasks/t:cancel"], False)
        cancellation.sweep()
        assert 0 < len(hung.asked) <= THREADS
        assert all(is_open(agents, sent) for sent in waiting)
        for sent in waiting:
            let_pass(agents, sent, minutes=61)
        cancellation.sweep()
        over.set()
    assert len(hung.asked) <= THREADS
    assert not any(is_open(agents, sent) for sent in waiting)
