"""Measure what each organization stores, in byte-microseconds, and charge each UTC day once.

A version is stored from its commit until its file ends: at its deadline (not when a sweep ends it), or when it is
deleted. The meter has one row per organization and day and follows events: a new version adds its bytes until the end
of the day, an ended file subtracts them. So a run costs what has changed. `storage_parts` divides each row by purpose,
owner and distribution, in the same statement.

`storage_mark` is the time up to which events are counted. It stays behind the clock by more than the longest
transaction, so no earlier event can still appear. Counting, mark and the next day's beginning are one transaction,
which also fixes the price of a day that is over (`storage_prices.py`). The first run counts all stored versions
(`storage_check.py`); nothing earlier is charged.
"""

from datetime import timedelta

from sqlalchemy import Row, text

from shared import failpoints
from shared.credits.amounts import parse_credits
from shared.credits.storage_billing.daily_charges import charge_storage
from shared.db.database import Database, Session
from shared.files.metering.storage_check import PARTS, STATEMENT_TIMEOUT, count_parts, count_stored
from shared.files.metering.storage_prices import PRICE_OF_DAY, StorageMonth, StoragePrice, record_price
from shared.messaging.jobs import Context, sweep
from shared.messaging.queues import LEDGER
from shared.runtime.batches import must_stop

SLACK = timedelta(minutes=10)
"""Longer than any transaction that writes or ends a file: a delete has nine statements, each with its timeout."""


@sweep("files.accrue_storage", queue=LEDGER, every_seconds=600)
def _accrue_storage(context: Context) -> int:
    settings = context.settings
    price = StoragePrice(
        amount=parse_credits(settings.storage_price), month=StorageMonth(settings.storage_month)
    )
    return accrue_storage(context.database, price=price, grace=timedelta(days=settings.storage_grace_days))


def accrue_storage(
    database: Database, *, price: StoragePrice, grace: timedelta, slack: timedelta = SLACK
) -> int:
    """Measure up to now, then charge each day that is over; return how many days of organizations were charged.

    `price` is today's price; `grace` is how long an organization that owes may store more. It may be repeated and may
    run twice at once.
    """
    while measure_storage(database, price=price, slack=slack):
        failpoints.hit("storage.day_measured")
        if must_stop():
            break
    failpoints.hit("storage.measured")
    return charge_storage(database, grace=grace)


def measure_storage(database: Database, *, price: StoragePrice, slack: timedelta = SLACK) -> bool:
    """Count events since the mark, at most to the end of its day; return whether that day is over.

    Does nothing while another process measures.
    """
    with database.transaction() as session:
        session.execute(text(f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT}'"))
        # The first run ever: there is no mark to continue from.
        if session.execute(_BEGIN, {"slack": slack}).rowcount:
            count_stored(session)
        span = session.execute(_LOCK_MARK, {"slack": slack}).one_or_none()
        if span is None:
            return False
        # The previous release has measured since: it moves the mark and writes no parts.
        if not span.has_parts:
            count_parts(session)
        record_price(session, price, span._asdict())
        _measure(session, span)
        failpoints.hit("storage.before_commit")
    return bool(span.is_whole_day)


def _measure(session: Session, span: Row[tuple[object, ...]]) -> None:
    values = span._asdict()
    session.execute(_FOLD, values)
    failpoints.hit("storage.folded")
    if span.is_whole_day:
        session.execute(_NEXT_DAY, values)
        session.execute(_NEXT_DAY_OF_PARTS, values)
    session.execute(_MOVE_MARK, values)


_BEGIN = text(
    """
INSERT INTO storage_mark (id, measured_to)
VALUES (1, date_trunc('day', now() - CAST(:slack AS interval), 'UTC')) ON CONFLICT DO NOTHING
"""
)
_LOCK_MARK = text(
    """
SELECT *, least(settled_at, day_ends_at) AS ends_at, settled_at >= day_ends_at AS is_whole_day
FROM (
    SELECT measured_to AS starts_at, parts_to IS NOT DISTINCT FROM measured_to AS has_parts,
        now() - CAST(:slack AS interval) AS settled_at,
        (measured_to AT TIME ZONE 'UTC')::date AS day,
        date_trunc('day', measured_to, 'UTC') + interval '24 hours' AS day_ends_at
    FROM storage_mark WHERE measured_to < now() - CAST(:slack AS interval) FOR UPDATE SKIP LOCKED
) AS mark
"""
)
# A version that ended before it began was never stored: a delete's time is the beginning of its transaction, which may
# have waited for a replace. A file past its deadline may or may not have been ended by the sweep meanwhile.
_FOLD = text(
    f"""
WITH ended AS (
    SELECT *, ended_at AS at FROM files WHERE ended_at >= :starts_at AND ended_at < :ends_at
    UNION ALL
    SELECT *, retention_expires_at FROM files
    WHERE state = 'Available' AND retention_expires_at IS NOT NULL
        AND retention_expires_at >= :starts_at AND retention_expires_at < :ends_at
), event AS (
    SELECT f.payer_id, {PARTS}, v.byte_size AS bytes, v.created_at AS at
    FROM file_versions v JOIN files f ON f.id = v.file_id
    WHERE v.created_at >= :starts_at AND v.created_at < :ends_at
        AND v.created_at < coalesce(f.ended_at, f.retention_expires_at, 'infinity')
    UNION ALL
    SELECT e.payer_id, {PARTS}, -v.byte_size, e.at
    FROM ended e JOIN file_versions v ON v.file_id = e.id AND v.created_at < e.at
), part AS (
    INSERT INTO storage_parts AS p (organization_id, day, {PARTS}, stored_bytes, byte_microseconds)
    SELECT payer_id, :day, {PARTS}, sum(bytes), sum(bytes * (extract(epoch FROM :day_ends_at - at) * 1000000))
    FROM event GROUP BY payer_id, {PARTS}
    ON CONFLICT (organization_id, day, {PARTS}) DO UPDATE SET
        stored_bytes = p.stored_bytes + excluded.stored_bytes,
        byte_microseconds = p.byte_microseconds + excluded.byte_microseconds
)
INSERT INTO storage_days AS d (organization_id, day, stored_bytes, byte_microseconds)
SELECT payer_id, :day, sum(bytes), sum(bytes * (extract(epoch FROM :day_ends_at - at) * 1000000))
FROM event GROUP BY payer_id
ON CONFLICT (organization_id, day) DO UPDATE SET
    stored_bytes = d.stored_bytes + excluded.stored_bytes,
    byte_microseconds = d.byte_microseconds + excluded.byte_microseconds
"""  # noqa: S608 (this module's own text)
)
_NEXT_DAY = text(
    f"""
WITH valid AS MATERIALIZED ({PRICE_OF_DAY}), over AS (
    UPDATE storage_days SET price = valid.price, price_days = valid.price_days FROM valid
    WHERE day = :day AND charged_at IS NULL
    RETURNING organization_id, stored_bytes
)
INSERT INTO storage_days (organization_id, day, stored_bytes, byte_microseconds)
SELECT organization_id, :day + 1, stored_bytes, stored_bytes * 86400000000::numeric FROM over WHERE stored_bytes <> 0
"""  # noqa: S608 (this module's own text)
)
_NEXT_DAY_OF_PARTS = text(
    f"""
INSERT INTO storage_parts (organization_id, day, {PARTS}, stored_bytes, byte_microseconds)
SELECT organization_id, :day + 1, {PARTS}, stored_bytes, stored_bytes * 86400000000::numeric FROM storage_parts
WHERE day = :day AND stored_bytes <> 0
"""  # noqa: S608 (this module's own text)
)
# The previous release moves `measured_to` only: if the two differ, the parts are counted again.
_MOVE_MARK = text("UPDATE storage_mark SET measured_to = :ends_at, parts_to = :ends_at")
