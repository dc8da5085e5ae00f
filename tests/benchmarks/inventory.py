"""Fill a database with many files as rows, to measure operations on a large database."""

import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID

import psycopg2

from shared.ids import new_id

BATCH = 1_000_000
_FILES = """
INSERT INTO files (id, organization_id, payer_id, purpose, owner_kind, owner_id, state, current_version_id, revision,
    retention_expires_at)
SELECT id, %(organization)s, %(organization)s, 'AgentArtifact', 'DaemonIdentity', %(owner)s, 'Available', version_id, 1,
    due
FROM bulk
"""
_VERSIONS = """
INSERT INTO file_versions (id, file_id, revision, file_name, media_type, byte_size, content_sha256)
SELECT version_id, id, 1, 'content.bin', 'application/octet-stream', 4096, decode(repeat('ab', 32), 'hex') FROM bulk
"""
_BLOBS = "INSERT INTO blobs (version_id, state, byte_size) SELECT version_id, 'live', 4096 FROM bulk"
_GRANTS = """
INSERT INTO read_grants (id, token_hash, file_id, version_id, created_by, access_expires_at)
SELECT uuidv7(), sha256(uuid_send(id)), id, version_id, %(owner)s, now() + interval '1 day' FROM bulk
"""
_MANY = """
CREATE TEMPORARY TABLE bulk AS SELECT uuidv7() AS id, uuidv7() AS version_id,
    now() + interval '1 day' + random() * interval '300 days' AS due FROM generate_series(1, %(count)s)
"""
_DUE = """
CREATE TEMPORARY TABLE bulk AS SELECT uuidv7() AS id, version_id, now() - interval '1 hour' AS due
FROM unnest(%(versions)s::uuid[]) AS version_id
"""


def store_unexpired(
    url: str, count: int, *, owner_id: str, organization_id: str, with_grants: bool = True
) -> None:
    """Add rows of this many placed files with a distant deadline, and a grant on each."""
    grants = [_GRANTS] if with_grants else []
    for first in range(0, count, BATCH):
        values = {"count": min(BATCH, count - first), "owner": owner_id, "organization": organization_id}
        _run(url, [_MANY, _FILES, _VERSIONS, _BLOBS, *grants, "DROP TABLE bulk"], values)
    _run(url, ["VACUUM ANALYZE"], {})


def store_expired(url: str, objects: Path, count: int, *, byte_size: int) -> None:
    """Add this many placed files whose deadline has passed, with their bytes."""
    version_ids = [new_id() for _ in range(count)]
    content = os.urandom(byte_size)
    for version_id in version_ids:
        (objects / f"{version_id.int & 0xFF:02x}" / str(version_id)).write_bytes(content)
    owner = str(new_id())
    values = {"versions": [str(each) for each in version_ids], "owner": owner, "organization": owner}
    _run(url, [_DUE, _FILES, _VERSIONS, _BLOBS, "DROP TABLE bulk"], values)


def some_files(url: str, count: int, *, owner_id: str) -> Sequence[tuple[UUID, UUID]]:
    """Return random files of an owner: their ids with their current versions' ids."""
    connection = psycopg2.connect(url)
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT id, current_version_id FROM files WHERE owner_id = %s LIMIT 20000", (owner_id,)
            )
            found = [(UUID(row[0]), UUID(row[1])) for row in cursor.fetchall()]
    finally:
        connection.close()
    return random.choices(found, k=count)


def _run(url: str, statements: Sequence[str], values: Mapping[str, object]) -> None:
    connection = psycopg2.connect(url)
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement, values)
    finally:
        connection.close()
