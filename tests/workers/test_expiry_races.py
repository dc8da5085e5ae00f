"""The sweep of deadlines against concurrent commits."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import psycopg2
import pytest

from shared.db.database import Database
from shared.files.blobs.local import LocalBlobStore
from shared.files.lifecycle import expiry
from shared.files.lifecycle.expiry import expire_due
from shared.ids import new_id
from tests.support.processes.stack import wait_until

_FILE = """
INSERT INTO files (id, organization_id, payer_id, purpose, owner_kind, owner_id, state, current_version_id, revision,
    retention_expires_at)
VALUES (%s, %s, %s, 'AgentArtifact', 'DaemonIdentity', %s, 'Available', %s, 1, now() + %s * interval '1 second')
"""
_VERSION = """
INSERT INTO file_versions (id, file_id, revision, file_name, media_type, byte_size, content_sha256)
VALUES (%s, %s, %s, 'a', 'text/plain', 0, decode(repeat('00', 32), 'hex'))
"""
_REPLACE = "UPDATE files SET current_version_id = %s, revision = 2 WHERE id = %s"
_BLOB = "INSERT INTO blobs (version_id, state, byte_size) VALUES (%s, 'live', 0)"
_PAUSE = """
CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql AS
'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END';
CREATE TRIGGER pause BEFORE UPDATE ON files FOR EACH ROW WHEN (OLD.id = '{}') EXECUTE FUNCTION pause()
"""
_RENEW = "UPDATE files SET retention_expires_at = now() + interval '1 day' WHERE id = %s"
_WAITING = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
_PAUSED = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


class Rows:
    """A connection that makes rows, statement by statement or held in one transaction."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg2.connect(url)
        self.connection.autocommit = True

    def run(self, statement: str, *parameters: object) -> object:
        with self.connection.cursor() as cursor:
            cursor.execute(statement, tuple(str(at) if isinstance(at, UUID) else at for at in parameters))
            return cursor.fetchone() if cursor.description else None

    def file(self, seconds: float) -> UUID:
        file_id = new_id()
        self.run(_FILE, file_id, new_id(), new_id(), new_id(), file_id, seconds)
        self.version(file_id, revision=1, version_id=file_id)
        return file_id

    def version(self, file_id: UUID, *, revision: int, version_id: UUID) -> None:
        self.run(_VERSION, version_id, file_id, revision)
        self.run(_BLOB, version_id)


@pytest.fixture
def rows(administrator_url: str) -> Iterator[Rows]:
    rows = Rows(administrator_url)
    yield rows
    rows.connection.close()


def test_expiry_takes_the_bytes_of_a_replace_that_commits_in_the_middle_of_it(
    database: Database, database_url: str, rows: Rows, tmp_path: Path
) -> None:
    first, second = rows.file(0.1), rows.file(0.5)
    late = new_id()
    rows.run(_PAUSE.format(first))
    replace = Rows(database_url)
    replace.connection.autocommit = False
    replace.run(_REPLACE, late, second)
    replace.version(second, revision=2, version_id=late)
    rows.run("SELECT pg_advisory_lock(1)")
    time.sleep(0.6)
    sweep = threading.Thread(target=expire_due, args=(database, LocalBlobStore(tmp_path)))
    sweep.start()
    wait_until(lambda: rows.run(_PAUSED) == (1,), "the sweep has begun")
    replace.connection.commit()
    replace.connection.close()
    rows.run("SELECT pg_advisory_unlock(1)")
    sweep.join()
    # The file that a replace held was passed over.
    expire_due(database, LocalBlobStore(tmp_path))
    assert rows.run("SELECT state FROM files WHERE id = %s", second) == ("Expired",)
    assert rows.run("SELECT count(*) FROM blobs") == (0,)


def test_a_renewal_that_has_not_committed_yet_is_passed_over(
    database: Database, database_url: str, rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When more is due than a batch, what is found is not locked yet: the statement that ends it decides."""
    monkeypatch.setattr(expiry, "BATCH_SIZE", 2)
    renewed, *others = (rows.file(-1) for _ in range(4))
    rows.run(
        "UPDATE files SET organization_id = %s WHERE id = ANY (%s::uuid[])", new_id(), list(map(str, others))
    )
    renewal = Rows(database_url)
    renewal.connection.autocommit = False
    renewal.run(_RENEW, renewed)
    sweep = threading.Thread(target=expire_due, args=(database, LocalBlobStore(tmp_path)))
    sweep.start()
    wait_until(lambda: not sweep.is_alive() or rows.run(_WAITING) == (1,), "the sweep has ended, or waits")
    renewal.connection.commit()
    renewal.connection.close()
    sweep.join()
    assert rows.run("SELECT state FROM files WHERE id = %s", renewed) == ("Available",)
    assert rows.run("SELECT count(*) FROM blobs WHERE version_id = %s", renewed) == (1,)
    assert rows.run(
        "SELECT count(*) FROM files WHERE id = ANY (%s::uuid[]) AND state = 'Expired'", list(map(str, others))
    ) != (0,)
