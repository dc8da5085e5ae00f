"""An agent for each module of these tests."""

from collections.abc import Iterator

import pytest

from deploy.embedded.valkey import EmbeddedValkey
from shared.db.database import Database
from tests.shared.a2a.behaviors.agents import Agents, make_agents


@pytest.fixture(scope="module")
def agents(
    request: pytest.FixtureRequest,
    database: Database,
    valkey_server: EmbeddedValkey,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Agents]:
    """Agents that follow the module's `SCRIPT`; without one a model echoes."""
    with make_agents(database, valkey_server.url, tmp_path_factory.mktemp("blobs")) as agents:
        script = getattr(request.module, "SCRIPT", None)
        if script is None:
            agents.use_model("scripted/echo")
        else:
            agents.use_script(script)
        yield agents
