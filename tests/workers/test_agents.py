"""The consumer of agent runs: it polls, takes over runs of dead workers, and returns its own at its end."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from deploy.embedded.valkey import EmbeddedValkey
from shared.a2a.turn_state.rows import AnswerTurn
from shared.a2a.types import TaskState
from shared.db.database import Database
from shared.messaging.queues import AGENTS
from tests.shared.a2a.behaviors.agents import Agents, make_agents
from tests.support.processes.bound_worker import bound_worker
from tests.support.processes.stack import wait_until
from workers import agents as agent_jobs
from workers.agents import TurnConsumer
from workers.handling import WorkerContext


@pytest.fixture
def agents(
    database: Database, database_url: str, valkey_server: EmbeddedValkey, tmp_path: Path
) -> Iterator[Agents]:
    with make_agents(database, valkey_server.url, tmp_path, database_url=database_url) as agents:
        yield agents


@pytest.fixture
def context(agents: Agents) -> Iterator[WorkerContext]:
    context = WorkerContext(agents.settings)
    yield context
    context.database.dispose()


@pytest.fixture
def worker(context: WorkerContext, monkeypatch: pytest.MonkeyPatch) -> Iterator[TurnConsumer]:
    monkeypatch.setattr(agent_jobs, "DRAIN_SECONDS", 0.0)
    worker = TurnConsumer(context, limit=4)
    worker.start()
    yield worker
    worker.drain()
    worker.stop()


def test_a_turn_that_nobody_heard_of_is_found(worker: TurnConsumer, agents: Agents) -> None:
    agents.use_script("rules:\n- steps: [complete: done]")
    sent = agents.say("hello")
    wait_until(lambda: agents.task(sent.task_id).status.state is TaskState.COMPLETED, "the answer")


def test_a_turn_of_a_dead_worker_is_taken_over(agents: Agents, worker: TurnConsumer) -> None:
    agents.use_script("rules:\n- steps: [{status: a}, {delay: 60}]")
    sent = agents.say("hello")
    wait_until(lambda: agents.turn(sent.turn_id)["updates"] == 1, "the first update")
    agents.set("UPDATE task_turns SET lease_id = gen_random_uuid() WHERE id = :id", id=sent.turn_id)
    wait_until(lambda: agents.turn(sent.turn_id)["attempts"] == 2, "another attempt")


def test_a_worker_that_stops_hands_its_turns_back(worker: TurnConsumer, agents: Agents) -> None:
    agents.use_script("rules:\n- steps: [{status: a}, {delay: 60}]")
    sent = agents.say("hello")
    wait_until(lambda: agents.turn(sent.turn_id)["updates"] == 1, "the first update")
    worker.drain()
    worker.stop()
    assert agents.turn(sent.turn_id)["state"] == "queued"


def test_a_hint_for_a_worker_that_answers_no_turns_does_nothing(agents: Agents) -> None:
    agents.use_script("rules:\n- steps: [complete: done]")
    sent = agents.say("hello")
    with bound_worker(agents.settings, [AGENTS]) as worker:
        worker.run(AnswerTurn.kind, turn_id=str(sent.turn_id))
    assert agents.turn(sent.turn_id)["state"] == "queued"


def test_a_hint_wakes_the_workers_consumers(agents: Agents) -> None:
    woken: list[str] = []
    with bound_worker(agents.settings, [AGENTS]) as worker:
        worker.context.add_consumers(AGENTS, lambda: woken.append(AGENTS))
        worker.run(AnswerTurn.kind, turn_id=str(uuid4()))
    assert woken == [AGENTS]
