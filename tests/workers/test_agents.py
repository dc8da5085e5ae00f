"""The jobs of agents as a worker does them, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
from workers.agents import bind_agents
from workers.handling import Depot


@pytest.fixture
def agents(database: Database, valkey_server: EmbeddedValkey, tmp_path: Path) -> Iterator[Agents]:
    with make_agents(database, valkey_server.url, tmp_path) as agents:
        yield agents


@pytest.fixture
def app(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> Iterator[Celery]:
    monkeypatch.setattr(agent_jobs, "DRAIN_SECONDS", 0.0)
    app = create_celery(agents.settings.redis_url)
    depot = Depot(agents.settings)
    depot.__dict__["database"] = agents.database
    receivers: Any = list(worker_shutting_down.receivers)
    bind_agents(app, depot)
    yield app
    worker_shutting_down.receivers = receivers
    app.close()


def test_a_message_brings_a_turn_to_its_agent(app: Celery, agents: Agents) -> None:
    agents.use_script("rules:\n- steps: [complete: done]")
    sent = agents.say("hello")
    app.tasks[AnswerTurn.kind](turn_id=str(sent.turn_id))
    assert agents.task(sent.task_id).status.state is TaskState.COMPLETED


def test_the_sweep_takes_back_what_a_dead_worker_held(app: Celery, agents: Agents) -> None:
    agents.use_script("rules:\n- steps: [complete: done]")
    sent = agents.say("hello")
    assert agents.log.claim(sent.turn_id) is not None
    agents.set("UPDATE task_turns SET lease_until = now() - interval '1 second'")
    app.tasks[SweepTurns.kind]()
    assert agents.turn(sent.turn_id)["state"] == "queued"


def test_a_worker_that_stops_hands_its_turns_back(app: Celery, agents: Agents) -> None:
    agents.use_script("rules:\n- steps: [{status: a}, {delay: 60}]")
    sent = agents.say("hello")
    thread = threading.Thread(target=app.tasks[AnswerTurn.kind], kwargs={"turn_id": str(sent.turn_id)})
    thread.start()
    wait_until(lambda: agents.turn(sent.turn_id)["updates"] == 1, "the first update")
    worker_shutting_down.send(sender=None)
    thread.join(20)
    assert agents.turn(sent.turn_id)["state"] == "queued"


def test_a_worker_that_has_answered_nothing_has_nothing_to_hand_back(app: Celery) -> None:
    worker_shutting_down.send(sender=None)
