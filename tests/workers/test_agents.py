"""The worker of agents looks for turns by itself, takes over those of the dead, and hands back its own at its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery
from celery.signals import worker_shutting_down

from deploy.embedded.valkey import EmbeddedValkey
from shared.a2a.jobs import AnswerTurn, SweepTurns
from shared.a2a.types import TaskState
from shared.database import Database
from shared.jobs import create_celery
from tests.shared.a2a.behaviors.agents import Agents, make_agents
from tests.support.stack import wait_until
from workers import agents as agent_jobs
from workers.agents import Turns, bind_agents
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
def worker(context: WorkerContext, monkeypatch: pytest.MonkeyPatch) -> Iterator[Turns]:
    monkeypatch.setattr(agent_jobs, "DRAIN_SECONDS", 0.0)
    worker = Turns(context, limit=4)
    worker.start()
    yield worker
    worker.drain()
    worker.stop()


def test_a_turn_that_nobody_heard_of_is_found(worker: Turns, agents: Agents) -> None:
    agents.use_script("rules:\n- steps: [complete: done]")
    sent = agents.say("hello")
    wait_until(lambda: agents.task(sent.task_id).status.state is TaskState.COMPLETED, "the answer")


def test_a_turn_of_a_dead_worker_is_taken_over(agents: Agents, worker: Turns) -> None:
    agents.use_script("rules:\n- steps: [{status: a}, {delay: 60}]")
    sent = agents.say("hello")
    wait_until(lambda: agents.turn(sent.turn_id)["updates"] == 1, "the first update")
    agents.set("UPDATE task_turns SET lease_id = gen_random_uuid() WHERE id = :id", id=sent.turn_id)
    wait_until(lambda: agents.turn(sent.turn_id)["attempts"] == 2, "another attempt", seconds=15)


def test_a_worker_that_stops_hands_its_turns_back(worker: Turns, agents: Agents) -> None:
    agents.use_script("rules:\n- steps: [{status: a}, {delay: 60}]")
    sent = agents.say("hello")
    wait_until(lambda: agents.turn(sent.turn_id)["updates"] == 1, "the first update")
    worker.drain()
    worker.stop()
    assert agents.turn(sent.turn_id)["state"] == "queued"


@pytest.fixture
def app(context: WorkerContext) -> Iterator[Celery]:
    app = create_celery(context.settings.redis_url)
    bind_agents(app, context)
    yield app
    app.close()


def test_a_hint_for_a_worker_that_answers_no_turns_does_nothing(app: Celery, agents: Agents) -> None:
    agents.use_script("rules:\n- steps: [complete: done]")
    sent = agents.say("hello")
    app.tasks[AnswerTurn.kind](turn_id=str(sent.turn_id))
    worker_shutting_down.send(sender=None)
    assert agents.turn(sent.turn_id)["state"] == "queued"


def test_a_turn_that_a_worker_of_before_forgot_to_mark_is_marked(app: Celery, agents: Agents) -> None:
    agents.use_script("rules:\n- steps: [complete: done]")
    sent = agents.say("hello")
    agents.set("UPDATE task_turns SET is_next = false WHERE id = :id", id=sent.turn_id)
    app.tasks[SweepTurns.kind]()
    assert agents.turn(sent.turn_id)["is_next"]
