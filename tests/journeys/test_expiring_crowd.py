"""Many files that expire in one minute do not delay retention and the ledger: each sweep ends after a batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID, uuid4

from shared.db.database import Database
from tests.journeys.conftest import Installation
from tests.shared.credits.calls import Calls
from tests.support.data.inventory import query
from tests.support.processes.stack import Stack, wait_until

FILES = 40_000
_EXPIRE = """
WITH file AS (
    INSERT INTO files (id, organization_id, payer_id, purpose, owner_kind, owner_id, state, current_version_id,
        revision, retention_expires_at)
    SELECT id, %s, %s, 'MessagingMedia', 'PrincipalIdentity', %s, 'Available', id, 1,
        now() + random() * interval '1 second'
    FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, %s)) AS made RETURNING id
), version AS (
    INSERT INTO file_versions (id, file_id, revision, file_name, media_type, byte_size, content_sha256)
    SELECT id, id, 1, 'a', 'text/plain', 1, sha256('') FROM file RETURNING id
)
INSERT INTO blobs (version_id, state, byte_size) SELECT id, 'live', 1 FROM version RETURNING 1
"""
_LEFT = "SELECT count(*) FROM files WHERE state = 'Available' AND retention_expires_at <= now()"


_SERVED = "SELECT count(*) = 0 FROM expiring_media WHERE file_id::text = %s"


def test_many_expiring_files_do_not_block_other_sweeps(installation: Installation) -> None:
    stack, watched, nobody = installation.stack, str(uuid4()), str(uuid4())
    query(stack, _EXPIRE, (nobody, nobody, nobody, FILES))
    # A sweep that ran until no file was left would occupy every free thread with its next copies.
    background = stack.worker("background", BACKGROUND_THREADS="2")
    ledger = stack.worker("ledger", LEDGER_THREADS="1")
    with closing_database(stack) as database, stack.running(background, ledger, stack.beat()):
        wait_until(lambda: left(stack) < FILES, "the first files expire", seconds=60)
        notice = "INSERT INTO expiring_media (file_id, distribution_id, details, expires_at)"
        query(stack, f"{notice} VALUES (%s, %s, '{{}}', now())", (watched, str(uuid4())))
        calls = Calls(database, UUID(installation.credentials["organizationId"]))
        overdue = calls.hold(1)
        calls.run("UPDATE invocations SET lease_until = now() WHERE id = :id", id=overdue)
        wait_until(lambda: query(stack, _SERVED, (watched,))[0][0], "retention is served", seconds=60)
        wait_until(lambda: calls.state(overdue) == "expired", "the ledger is served", seconds=60)
        assert left(stack) > 0, "all had expired before: this shows nothing"
    for table, column in (("blobs", "version_id"), ("file_versions", "id"), ("files", "id")):
        made = "SELECT current_version_id FROM files WHERE payer_id::text = %s"
        query(stack, f"DELETE FROM {table} WHERE {column} IN ({made})", (nobody,))


def left(stack: Stack) -> int:
    found: int = query(stack, _LEFT)[0][0]
    return found


@contextmanager
def closing_database(stack: Stack) -> Iterator[Database]:
    database = Database(stack.database_url.replace("postgresql:", "postgresql+psycopg2:", 1))
    yield database
    database.dispose()
