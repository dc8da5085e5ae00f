"""A destination and a sender for the tests of a module."""

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from shared.database import Database
from shared.deliveries.sender import Sender
from tests.shared.deliveries import outbox
from tests.shared.egress.servers import Server, serve


@pytest.fixture(scope="module")
def listening() -> Iterator[Server]:
    with serve() as server:
        yield server


@pytest.fixture
def server(listening: Server) -> Server:
    listening.forget()
    return listening


@pytest.fixture
def sender(database: Database) -> Iterator[Sender]:
    with outbox.sender(database) as sender:
        yield sender


@pytest.fixture(autouse=True)
def _empty(database: Database) -> None:
    with database.transaction() as session:
        session.execute(text("DELETE FROM deliveries"))
