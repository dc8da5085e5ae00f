"""A server for each module of these tests."""

from collections.abc import Iterator

import pytest

from tests.shared.egress.servers import Server, serve


@pytest.fixture(scope="module")
def listening() -> Iterator[Server]:
    with serve() as server:
        yield server


@pytest.fixture
def server(listening: Server) -> Server:
    listening.forget()
    return listening
