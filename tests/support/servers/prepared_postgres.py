"""The data files of a Postgres with the newest schema, created once: each process of a run would need some seconds."""

import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import create_engine, text

from deploy.embedded.postgres import APPLICATION_ROLE, EmbeddedPostgres
from shared.migrations.grants import grant_access
from shared.migrations.runner import migrate
from tests.support.processes import shared_artifacts
from tests.support.servers.memory_directories import memory_directory

TEMPLATE = "migrated"
_OFFER = "postgres"


def prepare(leaving: ExitStack) -> Callable[[], None]:
    """Offer such files until `leaving`; they exist once the returned function has been called."""
    otherwise = Path(leaving.enter_context(TemporaryDirectory()))
    server = EmbeddedPostgres(leaving.enter_context(memory_directory(otherwise)), durable=False)
    shared_artifacts.offer(_OFFER, server.directory / "data")
    leaving.callback(shared_artifacts.withdraw, _OFFER)

    def make() -> None:
        server.start()
        make_template(server)
        server.stop()

    return make


def start_prepared(server: EmbeddedPostgres) -> None:
    """Start a server, for the first time with the offered files."""
    files = shared_artifacts.find(_OFFER)
    if files is not None and not (server.directory / files.name).exists():
        server.directory.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", files, server.directory], check=True)
    server.start()


def make_template(server: EmbeddedPostgres) -> str:
    """Create a database as `quartermaster migrate` leaves it; return its name."""
    if not _has_template(server):
        server.create_database(TEMPLATE)
        engine = create_engine(driver_url(server.migrations_url(TEMPLATE)))
        migrate(engine)
        grant_access(engine, APPLICATION_ROLE)
        engine.dispose()
    return TEMPLATE


def driver_url(url: str) -> str:
    """Return the URL in SQLAlchemy's form."""
    return url.replace("postgresql://", "postgresql+psycopg2://", 1)


def _has_template(server: EmbeddedPostgres) -> bool:
    engine = create_engine(driver_url(server.url))
    with engine.connect() as connection:
        found = connection.execute(text("SELECT FROM pg_database WHERE datname = :name"), {"name": TEMPLATE})
        is_there = found.rowcount == 1
    engine.dispose()
    return is_there
