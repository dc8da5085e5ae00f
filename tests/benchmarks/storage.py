"""The row about storage charges: a day of many organizations, measured by its events and charged.

The yardstick is the calculation over every stored version, which the meter replaces and the consistency check still
runs.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg2

from shared.db.database import Database
from shared.files.metering.storage_charges import accrue_storage
from shared.files.metering.storage_check import find_storage_discrepancies
from shared.files.metering.storage_prices import StoragePrice
from tests.benchmarks.runner.measurements import CpuMeter, Sample, interleave
from tests.benchmarks.runner.product import Bench
from tests.benchmarks.runner.report import Line, milliseconds

PRICE = 25_000
_ORGANIZATIONS = (
    "INSERT INTO organizations (id, name) SELECT uuidv7(), 'o' FROM generate_series(1, %(organizations)s)"
)
# Files appear evenly over forty days, with the payers in turn. One in ten ended within a month.
_FILES = """
WITH payer AS (SELECT id, row_number() OVER () - 1 AS place FROM organizations)
INSERT INTO files (id, organization_id, payer_id, purpose, owner_kind, owner_id, state, current_version_id, revision,
    ended_at, created_at)
SELECT id, payer_id, payer_id, 'AgentArtifact', 'DaemonIdentity', payer_id,
    CASE WHEN has_ended THEN 'Deleted' ELSE 'Available' END, id, 1,
    CASE WHEN has_ended THEN at + random() * interval '30 days' END, at
FROM (
    SELECT uuidv7() AS id, payer.id AS payer_id, random() < 0.1 AS has_ended,
        %(starts_at)s + n * interval '40 days' / %(versions)s AS at
    FROM generate_series(1, %(versions)s) AS n JOIN payer ON payer.place = n %% %(organizations)s
) AS bulk
"""
_VERSIONS = """
INSERT INTO file_versions (id, file_id, revision, file_name, media_type, byte_size, content_sha256, created_at)
SELECT id, id, 1, 'a', 'text/plain', 1000000 * random(), decode(repeat('ab', 32), 'hex'), created_at FROM files
ORDER BY created_at
"""


def storage(bench: Bench) -> Iterator[Line]:
    """Accrue days in sequence, in turn with the calculation over all versions."""
    versions, organizations = bench.scaled(100_000, 20_000), bench.scaled(1000, 200)
    url = bench.migrated_database("storage")
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    starts_at = midnight - timedelta(days=40)
    _fill(url, versions, organizations, starts_at)
    database = Database(url.replace("postgresql://", "postgresql+psycopg2://", 1))
    meter = CpuMeter({"postgres": [bench.postgres_pid]}, own="worker")
    days = iter(range(20, 40))
    accrue_storage(
        database,
        price=StoragePrice(amount=PRICE),
        grace=timedelta(0),
        slack=datetime.now(UTC) - _day(starts_at, 20),
    )
    charged = 0

    def accrue() -> Sample:
        def next_day() -> None:
            nonlocal charged
            slack = datetime.now(UTC) - _day(starts_at, next(days) + 1)
            charged = accrue_storage(
                database, price=StoragePrice(amount=PRICE), grace=timedelta(0), slack=slack
            )

        return meter.run(next_day)

    def count() -> Sample:
        def all_versions() -> None:
            assert find_storage_discrepancies(database) == []

        return meter.run(all_versions)

    taken = interleave(bench.scaled(5, 2), {"accrue": accrue, "count": count})
    database.dispose()
    yield Line(
        what=f"a day of {organizations} organizations with {versions} versions, {versions // 40} of them new",
        figure=milliseconds(taken["accrue"].seconds),
        yardstick=f"two days from all versions: {milliseconds(taken['count'].seconds)}",
        ratio=taken["accrue"].seconds / taken["count"].seconds,
        cpu=f"{taken['accrue'].cpu_seconds * 1e6 / max(charged, 1):.0f} µs/charge of a day",
    )


def _day(starts_at: datetime, days: int) -> datetime:
    return starts_at + timedelta(days=days, seconds=1)


def _fill(url: str, versions: int, organizations: int, starts_at: datetime) -> None:
    connection = psycopg2.connect(url)
    connection.autocommit = True
    values = {"versions": versions, "organizations": organizations, "starts_at": starts_at}
    with connection.cursor() as cursor:
        for statement in (_ORGANIZATIONS, _FILES, _VERSIONS, "VACUUM ANALYZE"):
            cursor.execute(statement, values if "%(" in statement else None)
    connection.close()
