"""The scenario of `test_administrative_commands.py` over REST, by an operator with an address and an API key."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.valkey import EmbeddedValkey
from shared.db.database import Database
from tests.deploy.cli.test_administrative_commands import Operator, make_operator, tell_the_story
from tests.support.web.served_web_process import serving
from tests.support.web.web_process import open_front


@pytest.fixture
def operator(
    database_url: str, database: Database, valkey_server: EmbeddedValkey, tmp_path: Path
) -> Iterator[Operator]:
    """Return a remote operator; commands without a route run on the database."""
    operator = make_operator(database_url, database, valkey_server, tmp_path)
    keys = (operator.environment["ENCRYPTION_KEYS"],)
    with (
        open_front(database_url, valkey_server.url, tmp_path / "blobs", encryption_keys=keys) as front,
        serving(front.app) as url,
    ):
        key = front.identity.operator().api_key
        operator.afar = {"SERVICE_BASE_URL": url, "SERVICE_API_KEY": key, "DATABASE_URL": None}
        yield operator


def test_every_administrative_command_does_its_work_over_rest(operator: Operator) -> None:
    tell_the_story(operator)
