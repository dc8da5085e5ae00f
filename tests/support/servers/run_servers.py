"""One real Postgres and one real Valkey for each test process, in a directory that is removed with it.

They are the servers of `make up`, except that Postgres does not wait for the disk, and keeps its files in memory if
there is room: no ordinary test simulates a power failure. A test that does starts its own `EmbeddedPostgres(directory,
durable=True)`.
"""

from collections.abc import Iterator

import pytest

from deploy.embedded.postgres import EmbeddedPostgres
from deploy.embedded.valkey import EmbeddedValkey
from tests.support.servers.memory_directories import memory_directory
from tests.support.servers.prepared_postgres import start_prepared


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """Run Postgres for the session."""
    with memory_directory(otherwise=tmp_path_factory.mktemp("postgres")) as directory:
        server = EmbeddedPostgres(directory, durable=False)
        start_prepared(server)
        yield server
        server.stop()


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedValkey]:
    """Run Valkey for the session; a test that stops or kills it restarts it before it ends."""
    server = EmbeddedValkey(tmp_path_factory.mktemp("valkey"))
    server.start()
    yield server
    server.stop()
