"""Both halves of a model call over this module's database and the run's Valkey."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.valkey import EmbeddedValkey
from shared.database import Database
from shared.replies import ReplyStream
from shared.valkey import connect_valkey
from tests.shared.models.model_calls import ModelCalls, model_calls


@pytest.fixture(scope="package")
def reply_stream(valkey_server: EmbeddedValkey) -> ReplyStream:
    """The one of this process, whose reader runs for as long as the process does."""
    return ReplyStream(connect_valkey(valkey_server.url))


@pytest.fixture
def calls(
    database: Database, valkey_server: EmbeddedValkey, reply_stream: ReplyStream, tmp_path: Path
) -> Iterator[ModelCalls]:
    """Calls of a new organization, which has a credit."""
    with model_calls(database, valkey_server.url, reply_stream, tmp_path) as calls:
        yield calls
