"""Both halves of a model call, over this module's database and the run's Valkey."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from deploy.embedded.valkey import EmbeddedValkey
from shared.db.database import Database
from shared.messaging.replies import ReplyChannel
from shared.messaging.valkey import connect_valkey
from shared.models import heartbeats
from tests.shared.models.model_calls import ModelCalls, model_calls
from tests.support.models.call_messages import forget_calls
from tests.support.processes.stack import free_port


@pytest.fixture(scope="package")
def reply_channel(valkey_server: EmbeddedValkey) -> Iterator[ReplyChannel]:
    """The one of these tests' process."""
    channel = ReplyChannel(connect_valkey(valkey_server.url))
    yield channel
    channel.close()


@pytest.fixture(autouse=True)
def _brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the heartbeat intervals, so that they run several times a second."""
    monkeypatch.setattr(heartbeats, "ROUND_SECONDS", 0.05)
    monkeypatch.setattr(heartbeats, "ALIVE_SECONDS", 0.2)


@pytest.fixture
def calls(
    database: Database, valkey_server: EmbeddedValkey, reply_channel: ReplyChannel, tmp_path: Path
) -> Iterator[ModelCalls]:
    """Calls of a new organization, which has a credit."""
    with model_calls(database, valkey_server.url, reply_channel, tmp_path) as calls:
        yield calls


@pytest.fixture
def valkey(valkey_server: EmbeddedValkey) -> Iterator[redis.Redis]:
    """A Valkey in which no call waits afterwards."""
    with connect_valkey(valkey_server.url) as valkey:
        yield valkey
        forget_calls(valkey)


@pytest.fixture
def lost_database() -> Iterator[Database]:
    """A database that does not respond."""
    lost = Database(f"postgresql+psycopg2://nobody@127.0.0.1:{free_port()}/none")
    yield lost
    lost.dispose()
