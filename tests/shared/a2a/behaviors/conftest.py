"""Agents for the tests of behaviors."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.valkey import EmbeddedValkey
from shared.a2a.agent_turns import heartbeats
from shared.db.database import Database
from tests.shared.a2a.behaviors.agents import Agents, make_agents


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the periodic checks several times a second."""
    monkeypatch.setattr(heartbeats, "ROUND_SECONDS", 0.02)
    monkeypatch.setattr(heartbeats, "RENEWAL_SECONDS", 0.02)


@pytest.fixture
def agents(
    database: Database, valkey_server: EmbeddedValkey, tmp_path: Path, brisk: None
) -> Iterator[Agents]:
    """A new organization's agent."""
    with make_agents(database, valkey_server.url, tmp_path) as agents:
        yield agents
