"""Compare rows with rows, and rows with the bytes in the store: the service's promises must hold exactly.

`settle` lets all background work finish, as time and the schedule would. `find_faults` then lists every difference in
words. The store's tree and the rows must be exactly equal.
"""

import contextlib
import functools
import hashlib
import select
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import psycopg2
import psycopg2.extras
from kombu.exceptions import OperationalError

from shared.files.blobs.staging import UNLOCKED_SUFFIX
from shared.messaging.publisher import create_celery, send_kind
from tests.support.processes.stack import PATIENCE_SECONDS, Stack, TookTooLong, wait_until
from workers.schedule import build_schedule

SWEEPS = (
    "files.place_staged",
    "files.expire_due",
    "files.collect_doomed",
    "files.sweep_staging",
    "media.fetch_due",
)
RESEND_SECONDS = 1.0
Connection = psycopg2.extensions.connection
_WAITING = """
SELECT (SELECT count(*) FROM blobs WHERE state <> 'live') + (SELECT count(*) FROM ended_content)
    + (SELECT count(*) FROM files WHERE state = 'Available' AND retention_expires_at <= now())
    + (SELECT count(*) FROM media_imports WHERE state IN ('Queued', 'Fetching'))
"""
_DISAGREEING_ROWS = {
    "a stuck row": "SELECT version_id::text || ' ' || state FROM blobs WHERE state <> 'live'",
    "bytes kept for a file that has ended": """
        SELECT b.version_id FROM blobs b
        LEFT JOIN file_versions v ON v.id = b.version_id LEFT JOIN files f ON f.id = v.file_id
        WHERE f.state IS DISTINCT FROM 'Available' AND b.state IN ('live', 'staged')
            AND NOT EXISTS (SELECT FROM upload_pieces p WHERE p.blob_id = b.version_id)""",
    "a piece of a resumable upload without bytes, or of one that has ended": """
        SELECT p.blob_id FROM upload_pieces p JOIN resumable_uploads u ON u.id = p.upload_id
        LEFT JOIN blobs b ON b.version_id = p.blob_id
        WHERE b.state IS NULL OR b.state NOT IN ('live', 'staged') OR u.state <> 'Receiving'""",
    "a version of an available file without bytes": """
        SELECT v.id FROM file_versions v JOIN files f ON f.id = v.file_id
        LEFT JOIN blobs b ON b.version_id = v.id
        WHERE f.state = 'Available' AND (b.state IS NULL OR b.state NOT IN ('live', 'staged'))""",
    "a revision that does not count the versions": """
        SELECT f.id FROM files f WHERE f.revision <> (SELECT count(*) FROM file_versions v WHERE v.file_id = f.id)
        OR f.current_version_id <> (SELECT id FROM file_versions v
            WHERE v.file_id = f.id AND v.revision = f.revision)""",
    "a file that no upload made": """
        SELECT f.id FROM files f LEFT JOIN (SELECT file_id, count(*) AS made FROM file_operations
            WHERE kind = 'upload' GROUP BY file_id) o ON o.file_id = f.id
        WHERE f.purpose = 'AgentArtifact' AND o.made IS DISTINCT FROM 1""",
    "imported media that no import made, or more than one": """
        SELECT f.id FROM files f LEFT JOIN (SELECT file_id, version_id, count(*) AS made FROM media_imports
            GROUP BY file_id, version_id) i ON i.file_id = f.id AND i.version_id = f.current_version_id
        WHERE f.purpose = 'MessagingMedia' AND i.made IS DISTINCT FROM 1""",
    "a version that no operation made, or more than one": """
        SELECT v.id FROM file_versions v JOIN files f ON f.id = v.file_id AND f.purpose = 'AgentArtifact'
        LEFT JOIN (SELECT version_id, count(*) AS made FROM file_operations
            WHERE kind IN ('upload', 'replace') GROUP BY version_id) o ON o.version_id = v.id
        WHERE o.made IS DISTINCT FROM 1""",
    "imported media without a deadline": """
        SELECT id FROM files WHERE purpose = 'MessagingMedia' AND retention_expires_at IS NULL""",
    "an import that has not ended": "SELECT id FROM media_imports WHERE state IN ('Queued', 'Fetching')",
    "an import that is Stored without its file": """
        SELECT i.id FROM media_imports i LEFT JOIN files f ON f.id = i.file_id AND f.purpose = 'MessagingMedia'
        WHERE i.state = 'Stored' AND f.current_version_id IS DISTINCT FROM i.version_id""",
    "an import that is stored and keeps its secrets": """
        SELECT id FROM media_imports
        WHERE state = 'Stored' AND (headers_encrypted IS NOT NULL OR location <> '{}')""",
    "a deletion that no operation made": """
        SELECT f.id FROM files f LEFT JOIN (SELECT file_id, count(*) AS made FROM file_operations
            WHERE kind = 'delete' GROUP BY file_id) o ON o.file_id = f.id
        WHERE f.state = 'Deleted' AND o.made IS DISTINCT FROM 1""",
}
"""What counts operations groups them first: there is no index by file, and to count them for each is quadratic."""


@contextlib.contextmanager
def connect(stack: Stack) -> Iterator[Connection]:
    """Open a plain connection to the stack's database, independent of the code under test."""
    connection = psycopg2.connect(stack.administrator_url)
    connection.autocommit = True
    with contextlib.closing(connection):
        yield connection


class _Kept(threading.local):
    """The cached connections of a thread, one for each database: a waiting test queries every few milliseconds."""

    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}

    def to(self, stack: Stack) -> Connection:
        url = stack.administrator_url
        kept = self._connections.get(url)
        if kept is None or kept.closed or _has_ended(kept):
            kept = self._connections[url] = psycopg2.connect(url)
            kept.autocommit = True
        return kept


def _has_ended(idle: Connection) -> bool:
    """Return whether the server has closed an idle connection: it is readable although no query is open."""
    unread = select.poll()
    unread.register(idle, select.POLLIN)
    return bool(unread.poll(0))


_kept = _Kept()


def query(stack: Stack, statement: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
    """Run a statement in the stack's database, and return its rows."""
    return ask(_kept.to(stack), statement, parameters)


def end_retention(stack: Stack, file_id: str) -> None:
    """Move a file's deadline to just before now, however slow the machine is."""
    query(stack, "UPDATE files SET retention_expires_at = clock_timestamp() WHERE id = %s", (file_id,))


def ask(connection: Connection, statement: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
    """Run a statement over an open connection, and return its rows."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []


def expire_leases(stack: Stack) -> None:
    """Expire the leases of dead workers, and the pauses between attempts."""
    query(stack, "UPDATE blobs SET lease_until = now() - interval '1 second' WHERE lease_until > now()")
    query(
        stack,
        "UPDATE media_imports SET due_at = now() WHERE state IN ('Queued', 'Fetching') AND due_at > now()",
    )


def request_sweeps(stack: Stack) -> None:
    """Enqueue every sweep now, instead of waiting for beat."""
    send_sweeps(stack.broker_url, SWEEPS)


def send_sweeps(broker_url: str, kinds: Collection[str]) -> None:
    """Enqueue these sweeps as beat does; do nothing if the broker is down."""
    schedule = build_schedule()
    app = create_celery(broker_url)
    with contextlib.closing(app), contextlib.suppress(OperationalError):
        for kind in kinds:
            send_kind(app, kind, queue=schedule[kind]["options"]["queue"])


def settle(
    stack: Stack, *, seconds: float = PATIENCE_SECONDS, meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Have the running workers finish all work; raise `TookTooLong` with the pending work.

    `meanwhile` is called repeatedly, to supervise the workers.
    """
    deadline = time.monotonic() + seconds
    while not is_settled(stack):
        if time.monotonic() > deadline:
            left = query(
                stack, "SELECT version_id, state, lease_until FROM blobs WHERE state <> 'live' LIMIT 5"
            )
            left += query(stack, "SELECT id, state, code FROM media_imports WHERE ended_at IS NULL LIMIT 5")
            raise TookTooLong(f"not settled; rows: {left}, staging: {sorted(staged_names(stack.blobs))[:5]}")
        meanwhile()
        expire_leases(stack)
        request_sweeps(stack)
        _wait_a_moment_for(stack)


def is_settled(stack: Stack) -> bool:
    """Return whether no row is pending and nothing is staged."""
    return query(stack, _WAITING)[0][0] == 0 and not staged_names(stack.blobs)


def find_faults(stack: Stack) -> list[str]:
    """Return every difference between a drained stack's rows and the bytes of its local store."""
    recorded = dict(query(stack, "SELECT version_id, state FROM blobs"))
    objects, staged = placed_paths(stack.blobs), staged_names(stack.blobs)
    live = {name for name, state in recorded.items() if state == "live"}
    faults = [f"leaked bytes: {name}" for name in objects.keys() - live]
    faults += [f"leaked staging file: {name}" for name in staged - recorded.keys()]
    faults += [f"a live row without bytes: {name}" for name in live - objects.keys()]
    return faults + find_disagreeing_rows(stack) + _find_damage(stack, objects)


def find_disagreeing_rows(stack: Stack) -> list[str]:
    """Return every disagreement among a drained stack's rows."""
    return list_disagreeing_rows(_kept.to(stack))


def list_disagreeing_rows(connection: Connection) -> list[str]:
    """Return every disagreement among the rows, over an open connection."""
    return [
        f"{what}: {row[0]}"
        for what, statement in _DISAGREEING_ROWS.items()
        for row in ask(connection, statement)
    ]


def placed_paths(blobs: Path) -> dict[str, Path]:
    """Return the path of every object of a local store by its name."""
    return {path.name: path for path in (blobs / "objects").glob("*/*")}


def wait_until_receiving(blobs: Path) -> None:
    """Wait until a web process receives an upload into a file of its own: from then on it holds the file's lock."""
    wait_until(
        lambda: any(not name.endswith(UNLOCKED_SUFFIX) for name in staged_names(blobs)), "the front receives"
    )


def staged_names(blobs: Path) -> set[str]:
    """Return the names of the staged files of a local store."""
    return {path.name for path in (blobs / "staging").glob("*")}


def _find_damage(stack: Stack, objects: dict[str, Path]) -> list[str]:
    digests = {
        name: bytes(digest) for name, digest in query(stack, "SELECT id, content_sha256 FROM file_versions")
    }
    return [
        f"damaged bytes: {name}"
        for name, path in objects.items()
        if name in digests and _digest(path) not in {digests[name], None}
    ]


def _digest(path: Path) -> bytes | None:
    """Return a file's digest, cached by file; None if it was removed meanwhile."""
    try:
        status = path.stat()
        return _digest_once(path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    except FileNotFoundError:
        return None


@functools.cache
def _digest_once(path: Path, *_: int) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


def _wait_a_moment_for(stack: Stack) -> None:
    resend_at = time.monotonic() + RESEND_SECONDS
    while time.monotonic() < resend_at and not is_settled(stack):
        time.sleep(0.02)
