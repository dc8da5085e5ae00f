"""An agent that repeats what it is told, and the scheduler that tells it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.valkey import EmbeddedValkey
from shared.a2a.schedules.scheduler import Scheduler
from shared.a2a.tasks.router import Router
from shared.db.database import Database
from tests.shared.a2a.behaviors.agents import Agents, make_agents


@pytest.fixture
def agents(database: Database, valkey_server: EmbeddedValkey, tmp_path: Path) -> Iterator[Agents]:
    with make_agents(database, valkey_server.url, tmp_path) as agents:
        agents.use_script("rules:\n- steps: [complete: '${text}']")
        yield agents
        agents.set("UPDATE schedules SET next_at = NULL")


@pytest.fixture
def scheduler(agents: Agents) -> Scheduler:
    return Scheduler(database=agents.database, router=Router.of(agents.settings))
