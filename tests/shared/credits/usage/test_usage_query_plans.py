"""Query plans of reports: they read daily sums, a few hourly sums and two partial hours of records, by index."""

from uuid import uuid4

import pytest
from sqlalchemy import text

from shared.credits.key_usage import sum_spent
from shared.credits.usage.rollups import roll_up_usage
from shared.credits.usage.usage_query import Dimension, Interval
from shared.credits.usage.usage_reports import UsageCriteria, Window, model_usage, usage
from shared.db.database import Database
from tests.shared.credits.calls import Calls
from tests.support.data.identity import IdentityFactory, make_settings
from tests.support.data.query_plans import recorded_statements, rows_expected, rows_read

RECORDS, DAYS, GROUPS = 60_000, 30, 2
AN_HOUR = RECORDS / DAYS / 24
# Two models an hour; a day's edges have 24 hours each at most, and records of an hour each.
MOST = int(GROUPS * (DAYS + 2 * 24) + 2 * AN_HOUR) + 60
_FILL = text(
    """
INSERT INTO usage_records (invocation_id, organization_id, model, prompt_tokens, completion_tokens, cached_tokens,
    reasoning_tokens, cost, status, is_estimated, user_id, api_key_id, occurred_at)
SELECT gen_random_uuid(), :organization_id, 'acme/' || n % 2, 1, 1, 0, 0, 1, 'completed', false, :user_id, :key_id,
    now() - interval '30 days' * (n::float8 / :records)
FROM generate_series(1, :records) AS n
"""
)


@pytest.fixture(scope="module")
def busy(database: Database) -> Calls:
    """Return an organization with many calls in a month, beside another one."""
    calls = Calls(database, IdentityFactory(database, make_settings()).organization().id)
    calls.run("UPDATE usage_rollup SET rolled_up_to = 'epoch'")
    for organization_id in (calls.organization_id, uuid4()):
        with calls.database.transaction() as session:
            values = {
                "organization_id": str(organization_id),
                "user_id": str(uuid4()),
                "key_id": str(uuid4()),
            }
            session.execute(_FILL, values | {"records": RECORDS})
    roll_up_usage(calls.database)
    calls.run("ANALYZE usage_records")
    calls.run("ANALYZE usage_hours")
    calls.run("ANALYZE usage_days")
    return calls


def test_a_report_reads_sums_and_two_parts_of_an_hour(busy: Calls) -> None:
    with (
        recorded_statements(busy.database, beginning=("WITH",)) as statements,
        busy.database.autocommit() as session,
    ):
        for window in Window:
            for group_by in ((Dimension.MODEL,), (Dimension.MODEL, Dimension.PRINCIPAL), tuple(Dimension)):
                for interval in (None, Interval.DAY):
                    criteria = UsageCriteria(window=window, group_by=group_by, interval=interval)
                    assert usage(session, busy.organization_id, criteria).total.invocations > 0
    assert len(statements) == 18
    for statement in statements:
        read, plan = rows_read(busy.database, statement)
        assert read <= MOST, plan


def test_a_series_by_hour_reads_the_hours_of_its_span(busy: Calls) -> None:
    criteria = UsageCriteria(window=Window.WEEK, interval=Interval.HOUR)
    with (
        recorded_statements(busy.database, beginning=("WITH",)) as statements,
        busy.database.autocommit() as session,
    ):
        assert 168 <= len(usage(session, busy.organization_id, criteria).groups) <= 169
    read, plan = rows_read(busy.database, statements[0])
    assert read <= GROUPS * 168 + 2 * AN_HOUR + 60, plan


def test_a_series_by_hour_is_planned_for_the_hours_of_its_span(busy: Calls) -> None:
    for window, hours in ((Window.DAY, 24), (Window.MONTH, 720)):
        criteria = UsageCriteria(window=window, interval=Interval.HOUR)
        with (
            recorded_statements(busy.database, beginning=("WITH",)) as statements,
            busy.database.autocommit() as session,
        ):
            usage(session, busy.organization_id, criteria)
        expected, plan = rows_expected(busy.database, statements[0], "usage_hours")
        assert GROUPS * hours / 10 <= expected <= GROUPS * hours, plan


def test_the_catalogs_figures_do_not_read_the_records_of_a_day(busy: Calls) -> None:
    with (
        recorded_statements(busy.database, beginning=("WITH",)) as statements,
        busy.database.autocommit() as session,
    ):
        assert model_usage(session)["acme/1"][1] >= AN_HOUR * 23
    read, plan = rows_read(busy.database, statements[0])
    assert read < RECORDS / DAYS, plan


_OTHER_KEYS = text(
    """
INSERT INTO usage_days (organization_id, day, model, api_key_id, invocations, prompt_tokens, completion_tokens,
    cached_tokens, reasoning_tokens, cost)
SELECT :organization_id, date_trunc('day', now(), 'UTC') - interval '1 day' * (1 + n % 300), 'acme/0',
    gen_random_uuid(), 1, 1, 1, 0, 0, 1
FROM generate_series(1, 20000) AS n
"""
)


def test_what_a_key_has_spent_is_read_from_its_days(busy: Calls) -> None:
    with busy.database.transaction() as session:
        session.execute(_OTHER_KEYS, {"organization_id": busy.organization_id})
    busy.run("ANALYZE usage_days")
    with busy.database.autocommit() as session:
        key_id = session.execute(
            text("SELECT api_key_id FROM usage_records WHERE organization_id = :id LIMIT 1"),
            {"id": busy.organization_id},
        ).scalar_one()
        with recorded_statements(busy.database, beginning=("WITH",)) as statements:
            spent = sum_spent(session, busy.organization_id, api_key_id=key_id)
    assert spent.usage == RECORDS
    assert 0 < spent.usage_daily <= spent.usage_monthly <= RECORDS
    read, plan = rows_read(busy.database, statements[0])
    assert read <= GROUPS * (DAYS + 24) + 2 * AN_HOUR + 60, plan
