"""Count what is stored from the versions themselves: to begin the meter, to verify it, and to correct it.

The meter (`storage_charges.py`) must agree with this count of all versions of a day. The count reads them in batches,
against one moment. A discrepancy is reported and not repaired: an operator counts again (`quartermaster credits
recount-storage`) and corrects wrong charges by adjustments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import text

from shared.db.database import Database, Session
from shared.messaging.jobs import Context, sweep
from shared.messaging.queues import LEDGER
from shared.observability.telemetry import LEDGER_DISCREPANCIES, get_logger
from shared.runtime.batches import must_stop

log = get_logger(__name__)

STATEMENT_TIMEOUT = "30min"
MAX_REPORTED = 100
BATCH_SIZE = 5000
BATCH_VERSIONS = 100_000
"""The most files, and the most versions of them, that one statement adds up; a file with more is split."""
KIND = "storage_measured"
PARTS = "purpose, owner_kind, owner_id, distribution_id"
"""The columns by which `storage_parts` divides an organization's day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageDiscrepancy:
    """A day of an organization with a row that differs from its versions; `found` is the row's figure."""

    organization_id: UUID
    day: date
    expected_bytes: int
    found_bytes: int
    expected_byte_microseconds: int
    found_byte_microseconds: int


@sweep("files.prove_storage", queue=LEDGER, every_seconds=21_600)
def _prove_storage(context: Context) -> int:
    return context.once(_make_proof).step(context.database)


def _make_proof(_: Context) -> StorageProof:
    return StorageProof()


def find_storage_discrepancies(database: Database) -> list[StorageDiscrepancy]:
    """Compare the present day and the one before with their versions; return an empty list if all agree."""
    comparison = _Comparison(database)
    while comparison.add_batch(database):
        pass
    return comparison.differences()


class StorageProof:
    """A comparison of all versions over several runs: each continues where the one before was truncated."""

    def __init__(self) -> None:
        self._under_way: _Comparison | None = None

    def step(self, database: Database) -> int:
        """Continue the comparison; after the last version log and count the discrepancies, and return how many."""
        comparison = self._under_way or _Comparison(database)
        self._under_way = comparison
        while comparison.add_batch(database):
            if must_stop():
                return 0
        self._under_way = None
        found = comparison.differences()
        _report(found)
        return len(found)


_Place = tuple[UUID, int]
"""A file, and the revision up to which its versions have been added up."""
_LAST_REVISION = 2**31 - 1
_Measured = tuple[int, int]
"""The bytes that are stored, and bytes times microseconds of the day."""


class _Comparison:
    """The days' rows at one moment, and the sums of the versions, batch by batch.

    Later events do not change what a version stored before the mark.
    """

    def __init__(self, database: Database) -> None:
        """Read the mark and the rows under the mark's lock, so that no measurement comes in between."""
        self._found: dict[tuple[date, UUID], _Measured] = {}
        self._expected: dict[tuple[date, UUID], _Measured] = {}
        self._values: dict[str, Any] | None = None
        self._after: _Place | None = (UUID(int=0), _LAST_REVISION)
        # The mark's lock keeps the meter out until the rows are read: both sides are of one moment.
        with database.transaction() as session:
            mark = session.execute(_LOCK_MARK).one_or_none()
            if mark is None:
                return
            days = [mark.day - timedelta(days=1), mark.day] if mark.has_day_before else [mark.day]
            self._values = {"days": days, "measured_to": mark.measured_to}
            for row in session.execute(_ROWS, {"days": days}):
                self._found[row.day, row.organization_id] = int(row.stored_bytes), int(row.byte_microseconds)

    def add_batch(self, database: Database) -> bool:
        """Add up the next versions, file by file; return False if there are no more."""
        if self._values is None or self._after is None:
            return False
        file_id, revision = self._after
        batch = {"after": file_id, "after_revision": revision, "size": BATCH_SIZE, "most": BATCH_VERSIONS}
        with database.autocommit() as session:
            rows = session.execute(_ADD_UP, {**self._values, **batch}).all()
        # The query returns one row even without versions, with a null id at the end.
        self._after = None if rows[0].last_id is None else (rows[0].last_id, rows[0].to_revision)
        for row in rows:
            if row.organization_id is not None:
                stored, time = self._expected.get((row.day, row.organization_id), (0, 0))
                added = stored + int(row.stored_bytes), time + int(row.byte_microseconds)
                self._expected[row.day, row.organization_id] = added
        return self._after is not None

    def differences(self) -> list[StorageDiscrepancy]:
        """Return the rows that differ from their versions."""
        nothing = (0, 0)
        return [
            StorageDiscrepancy(
                organization_id=key[1],
                day=key[0],
                expected_bytes=expected[0],
                found_bytes=found[0],
                expected_byte_microseconds=expected[1],
                found_byte_microseconds=found[1],
            )
            for key in sorted(self._found.keys() | self._expected.keys())
            if (expected := self._expected.get(key, nothing)) != (found := self._found.get(key, nothing))
        ]


def _report(found: Sequence[StorageDiscrepancy]) -> None:
    LEDGER_DISCREPANCIES.labels(KIND).set(len(found))
    # A fault of the meter may concern every organization: the count tells of all, the log of some.
    for at in found[:MAX_REPORTED]:
        log.warning(
            "storage.discrepancy",
            organization_id=at.organization_id,
            day=at.day.isoformat(),
            expected_bytes=at.expected_bytes,
            found_bytes=at.found_bytes,
            expected_byte_microseconds=at.expected_byte_microseconds,
            found_byte_microseconds=at.found_byte_microseconds,
        )


def count_stored(session: Session) -> int:
    """Replace the rows of the present day by a count of the versions; return for how many organizations."""
    session.execute(text(f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT}'"))
    mark = session.execute(_LOCK_MARK).one_or_none()
    if mark is None:
        return 0
    session.execute(_CLEAR, {"day": mark.day})
    counted = session.execute(_COUNT, {"days": [mark.day], "measured_to": mark.measured_to}).rowcount
    count_parts(session)
    return counted


def count_parts(session: Session) -> None:
    """Replace the parts of that day by a count: the previous release does not write them."""
    mark = session.execute(_LOCK_MARK).one()
    session.execute(_CLEAR_PARTS, {"day": mark.day})
    session.execute(_COUNT_PARTS, {"days": [mark.day], "measured_to": mark.measured_to})
    session.execute(_MARK_PARTS)


_LOCK_MARK = text(
    """
SELECT measured_to, (measured_to AT TIME ZONE 'UTC')::date AS day,
    EXISTS (SELECT FROM storage_days WHERE price IS NOT NULL) AS has_day_before
FROM storage_mark FOR UPDATE
"""
)
_ROWS = text(
    "SELECT day, organization_id, stored_bytes, byte_microseconds FROM storage_days WHERE day = ANY (:days)"
)


def _stored(source: str, parts: str = "") -> str:
    """Return the query of the bytes and time of each payer and part, as the days' rows must have them up to the mark.

    It adds up, of each file of the source, the versions after `after_revision` up to `to_revision`. A version without a
    known end counts until the end of the day.
    """
    return f"""
WITH span AS (
    SELECT day, day::timestamp AT TIME ZONE 'UTC' AS starts_at, (day + 1)::timestamp AT TIME ZONE 'UTC' AS ends_at,
        least(:measured_to, (day + 1)::timestamp AT TIME ZONE 'UTC') AS known_to
    FROM unnest(CAST(:days AS date[])) AS day
), batch AS ({source}), stored AS (
    SELECT span.day, f.payer_id, {PARTS}, v.byte_size, greatest(v.created_at, span.starts_at) AS since,
        CASE WHEN file_end.at < span.known_to THEN file_end.at END AS until, span.ends_at
    FROM span, batch f
    CROSS JOIN LATERAL (SELECT coalesce(f.ended_at, f.retention_expires_at) AS at) AS file_end
    JOIN file_versions v ON v.file_id = f.id AND v.revision > f.after_revision AND v.revision <= f.to_revision
    WHERE (f.ended_at IS NULL OR f.ended_at >= span.starts_at)
        AND (file_end.at IS NULL OR (file_end.at >= span.starts_at AND file_end.at > v.created_at))
        AND v.created_at < span.known_to
), expected AS (
    SELECT day, payer_id AS organization_id, {parts}
        coalesce(sum(byte_size) FILTER (WHERE until IS NULL), 0) AS stored_bytes,
        sum(byte_size * (extract(epoch FROM coalesce(until, ends_at) - since) * 1000000)) AS byte_microseconds
    FROM stored GROUP BY {parts} day, payer_id
)"""  # noqa: S608 (this module's own text)


_COLUMNS = f"id, payer_id, ended_at, retention_expires_at, {PARTS}"
_FILES = f"SELECT {_COLUMNS}, 0 AS after_revision, {_LAST_REVISION} AS to_revision FROM files"  # noqa: S608 (its own text)
# A file's revision is its number of versions. A file of which not all versions fit is the last of its batch and the
# first of the next.
_BATCH = f"""
    SELECT {_COLUMNS}, after_revision,
        CASE WHEN before + revision - after_revision <= :most THEN {_LAST_REVISION}
            ELSE after_revision + :most - before END AS to_revision
    FROM (
        SELECT *, sum(revision - after_revision) OVER (ORDER BY id) - (revision - after_revision) AS before
        FROM (
            SELECT *, CASE WHEN id = :after THEN :after_revision ELSE 0 END AS after_revision FROM files
            WHERE id >= :after AND (id > :after OR revision > :after_revision) ORDER BY id LIMIT :size
        ) AS next
    ) AS counted
    WHERE before < :most"""  # noqa: S608 (this module's own text)
_ADD_UP = text(
    f"""{_stored(_BATCH)}
SELECT last.*, expected.* FROM (SELECT) AS one
LEFT JOIN (SELECT id AS last_id, to_revision FROM batch ORDER BY id DESC LIMIT 1) AS last ON true
LEFT JOIN expected ON true
"""  # noqa: S608 (this module's own text)
)
_CLEAR = text(
    "UPDATE storage_days SET stored_bytes = 0, byte_microseconds = 0 WHERE day = :day AND charged_at IS NULL"
)
_COUNT = text(
    f"""{_stored(_FILES)}
INSERT INTO storage_days AS d (organization_id, day, stored_bytes, byte_microseconds)
SELECT organization_id, day, stored_bytes, byte_microseconds FROM expected
ON CONFLICT (organization_id, day) DO UPDATE SET
    stored_bytes = excluded.stored_bytes, byte_microseconds = excluded.byte_microseconds
"""  # noqa: S608 (this module's own text)
)
_CLEAR_PARTS = text("DELETE FROM storage_parts WHERE day = :day")
_COUNT_PARTS = text(
    f"""{_stored(_FILES, f"{PARTS},")}
INSERT INTO storage_parts (organization_id, day, {PARTS}, stored_bytes, byte_microseconds)
SELECT organization_id, day, {PARTS}, stored_bytes, byte_microseconds FROM expected
"""  # noqa: S608 (this module's own text)
)
_MARK_PARTS = text("UPDATE storage_mark SET parts_to = measured_to")
