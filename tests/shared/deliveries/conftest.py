"""A destination and a courier for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from shared.database import Database
from shared.deliveries.courier import Courier
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
def courier(database: Database) -> Iterator[Courier]:
    with outbox.courier(database) as courier:
        yield courier


@pytest.fixture(autouse=True)
def _empty(database: Database) -> None:
    with database.transaction() as session:
        session.execute(text("DELETE FROM deliveries"))
