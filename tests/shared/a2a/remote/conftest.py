"""An organization's agent that runs elsewhere, and this process as the worker that asks it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.valkey import EmbeddedValkey
from shared.a2a.agent_turns import heartbeats
from shared.a2a.remote import connection, task_polling
from shared.db.database import Database
from tests.shared.a2a.behaviors.agents import Agents, make_agents
from tests.shared.a2a.remote.turns import use_endpoint
from tests.support.agents.a2a_sdk_process import GenuineAgent, genuine_agent

RETRY_SECONDS = 8.0
SILENCE_SECONDS = 6.0


@pytest.fixture(scope="module")
def teller() -> Iterator[GenuineAgent]:
    """A genuine agent for all tests of a module."""
    with genuine_agent() as agent:
        yield agent


@pytest.fixture
def agents(
    database: Database, valkey_server: EmbeddedValkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Agents]:
    """A new organization and its deployment, which has no endpoint yet."""
    monkeypatch.setattr(heartbeats, "ROUND_SECONDS", 0.02)
    monkeypatch.setattr(heartbeats, "RENEWAL_SECONDS", 0.02)
    monkeypatch.setattr(connection, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(task_polling, "LONGEST_POLL_SECONDS", 0.5)
    monkeypatch.setattr(task_polling, "SUBSCRIBED_POLL_SECONDS", 1.0)
    options: dict[str, Any] = {
        "egress_allow_private": True,
        "egress_allow_http": True,
        "a2a_remote_retry_seconds": RETRY_SECONDS,
        "a2a_remote_silence_seconds": SILENCE_SECONDS,
    }
    with make_agents(database, valkey_server.url, tmp_path, **options) as agents:
        yield agents


@pytest.fixture(params=["http+json", "jsonrpc"])
def use_teller(
    agents: Agents, teller: GenuineAgent, request: pytest.FixtureRequest
) -> Callable[..., GenuineAgent]:
    """Have the genuine agent answer, by one binding and by the other."""

    def use(*, streams: bool = True) -> GenuineAgent:
        use_endpoint(agents, teller.url, binding=request.param, streams=streams)
        return teller

    return use
