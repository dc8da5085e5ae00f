"""A destination and a sender for the tests of a module."""

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from shared.db.database import Database
from shared.deliveries.sender import Sender
from tests.shared.deliveries import outbox


@pytest.fixture
def sender(database: Database) -> Iterator[Sender]:
    with outbox.sender(database) as sender:
        yield sender


@pytest.fixture(autouse=True)
def _empty(database: Database) -> None:
    with database.transaction() as session:
        session.execute(text("DELETE FROM deliveries"))
