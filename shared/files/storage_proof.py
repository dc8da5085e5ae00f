"""Count what is stored from the versions themselves: to begin the meter, to prove it, and to put it right.

The meter (`storage_charges.py`) follows events; this is the calculation that it must agree with, over every version
that was stored in a day. It reads all of them, so it runs once a day and on demand. A discrepancy is reported and not
repaired: an operator looks, counts anew (`quartermaster credits recount-storage`), and puts charges that were wrong
right by adjustments.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from uuid import UUID

from sqlalchemy import text

from shared.database import Database, Session
from shared.jobs import Context, sweep
from shared.queues import LEDGER
from shared.telemetry import LEDGER_DISCREPANCIES, get_logger

log = get_logger(__name__)

STATEMENT_TIMEOUT = "30min"
MAX_REPORTED = 100
KIND = "storage_measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismeasured:
    """A day of an organization whose row does not say what its versions say; `found` is the row's figure."""

    organization_id: UUID
    day: date
    expected_bytes: int
    found_bytes: int
    expected_byte_microseconds: int
    found_byte_microseconds: int


@sweep("files.prove_storage", queue=LEDGER, every_seconds=21_600)
def _prove_storage(context: Context) -> int:
    return prove_storage(context.database)


def prove_storage(database: Database) -> int:
    """Check the day that is being measured and the one before; log and count what disagrees, return how much."""
    with database.transaction() as session:
        found = find_mismeasured(session)
    LEDGER_DISCREPANCIES.labels(KIND).set(len(found))
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
    return len(found)


def find_mismeasured(session: Session) -> list[Mismeasured]:
    """Compare those two days with their versions; an empty list is the proof. Nothing is measured meanwhile."""
    session.execute(text(f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT}'"))
    mark = session.execute(_LOCK_MARK).one_or_none()
    if mark is None:
        return []
    days = [mark.day - timedelta(days=1)] if mark.has_day_before else []
    return [
        Mismeasured(
            organization_id=row.organization_id,
            day=day,
            expected_bytes=int(row.expected_bytes),
            found_bytes=int(row.found_bytes),
            expected_byte_microseconds=int(row.expected_byte_microseconds),
            found_byte_microseconds=int(row.found_byte_microseconds),
        )
        for day in [*days, mark.day]
        for row in session.execute(_COMPARE, {"day": day, "measured_to": mark.measured_to})
    ]


def count_stored(session: Session) -> int:
    """Write the day that is being measured anew, from the versions; return for how many organizations."""
    session.execute(text(f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT}'"))
    mark = session.execute(_LOCK_MARK).one_or_none()
    if mark is None:
        return 0
    values = {"day": mark.day, "measured_to": mark.measured_to}
    session.execute(_CLEAR, values)
    return session.execute(_COUNT, values).rowcount


_LOCK_MARK = text(
    """
SELECT measured_to, (measured_to AT TIME ZONE 'UTC')::date AS day,
    EXISTS (SELECT FROM storage_days WHERE price IS NOT NULL) AS has_day_before
FROM storage_mark FOR UPDATE
"""
)
# What a day's row says when all before the mark has been folded in: a version whose end is not known yet counts until
# the end of the day.
_STORED = """
WITH span AS (
    SELECT CAST(:day AS date)::timestamp AT TIME ZONE 'UTC' AS starts_at,
        (CAST(:day AS date) + 1)::timestamp AT TIME ZONE 'UTC' AS ends_at,
        least(:measured_to, (CAST(:day AS date) + 1)::timestamp AT TIME ZONE 'UTC') AS known_to
), stored AS (
    SELECT f.payer_id, v.byte_size, greatest(v.created_at, span.starts_at) AS since,
        CASE WHEN file_end.at < span.known_to THEN file_end.at END AS until, span.ends_at
    FROM span, files f
    CROSS JOIN LATERAL (SELECT coalesce(f.ended_at, f.retention_expires_at) AS at) AS file_end
    JOIN file_versions v ON v.file_id = f.id
    WHERE (f.ended_at IS NULL OR f.ended_at >= span.starts_at)
        AND (file_end.at IS NULL OR (file_end.at >= span.starts_at AND file_end.at > v.created_at))
        AND v.created_at < span.known_to
), expected AS (
    SELECT payer_id AS organization_id, coalesce(sum(byte_size) FILTER (WHERE until IS NULL), 0) AS stored_bytes,
        sum(byte_size * (extract(epoch FROM coalesce(until, ends_at) - since) * 1000000)) AS byte_microseconds
    FROM stored GROUP BY payer_id
)
"""
_COMPARE = text(
    f"""{_STORED}
SELECT organization_id, coalesce(e.stored_bytes, 0) AS expected_bytes, coalesce(d.stored_bytes, 0) AS found_bytes,
    coalesce(e.byte_microseconds, 0) AS expected_byte_microseconds,
    coalesce(d.byte_microseconds, 0) AS found_byte_microseconds
FROM expected e FULL JOIN (SELECT * FROM storage_days WHERE day = :day) AS d USING (organization_id)
WHERE (coalesce(e.stored_bytes, 0), coalesce(e.byte_microseconds, 0))
    <> (coalesce(d.stored_bytes, 0), coalesce(d.byte_microseconds, 0))
ORDER BY organization_id
"""  # noqa: S608 (this module's own text)
)
_CLEAR = text(
    "UPDATE storage_days SET stored_bytes = 0, byte_microseconds = 0 WHERE day = :day AND charged_at IS NULL"
)
_COUNT = text(
    f"""{_STORED}
INSERT INTO storage_days AS d (organization_id, day, stored_bytes, byte_microseconds)
SELECT organization_id, :day, stored_bytes, byte_microseconds FROM expected
ON CONFLICT (organization_id, day) DO UPDATE SET
    stored_bytes = excluded.stored_bytes, byte_microseconds = excluded.byte_microseconds
"""  # noqa: S608 (this module's own text)
)
