"""Lists of usage records with several filters: each strategy returns the same records and reads few rows."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import delete, text

from shared.credits.settlement import Status
from shared.credits.tables import usage_records
from shared.credits.usage import usage_records as usage
from shared.credits.usage.usage_records import RecordFilter, list_usage_records
from shared.db.database import Database
from tests.support.data.query_plans import recorded_statements, rows_read
from tests.support.data.row_factory import plant_all

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
STATUSES = ("completed", "failed")
USERS = [uuid4() for _ in range(2)]
PRINCIPALS = [uuid4() for _ in range(3)]
CALLS: list[dict[str, Any]] = [
    {
        "invocation_id": uuid4(),
        "user_id": USERS[at % 2],
        "principal_id": PRINCIPALS[at % 3],
        "model": f"acme/{at % 4}",
        "status": STATUSES[at % 5 == 0],
        "occurred_at": BEGAN + timedelta(hours=at // 4),  # four of a moment
        "cost": 1,
    }
    for at in range(60)
]
FILTERS: tuple[dict[str, Any], ...] = (
    {"model": "acme/1", "principal_id": PRINCIPALS[0]},
    {"model": "acme/1", "status": Status.FAILED},
    {"model": "acme/3", "principal_id": PRINCIPALS[1], "starts_at": BEGAN + timedelta(hours=3)},
    {"model": "acme/2", "status": Status.COMPLETED, "ends_at": BEGAN + timedelta(hours=9)},
    {"model": "acme/none", "principal_id": PRINCIPALS[2]},
    {"status": Status.FAILED},
    {},
)


@pytest.fixture(scope="module")
def organization_id(database: Database) -> Iterator[UUID]:
    """Return an organization with all of the calls, beside another one with similar calls."""
    organization_id, another = uuid4(), uuid4()
    others = [{**call, "invocation_id": uuid4(), "organization_id": another} for call in CALLS]
    ours = [{**call, "organization_id": organization_id} for call in CALLS]
    plant_all(database, [(usage_records, call) for call in (*ours, *others)])
    yield organization_id
    forget(database, organization_id, another)


def forget(database: Database, *organization_ids: UUID) -> None:
    """Delete the records, which are in no rollup, so that other tests do not find them."""
    with database.transaction() as session:
        session.execute(delete(usage_records).where(usage_records.c.organization_id.in_(organization_ids)))


@pytest.mark.parametrize(("looked_at", "few"), [(1000, 1), (10, 1000), (1, 1000), (1, 1)])
@pytest.mark.parametrize("user_id", [None, USERS[0]], ids=["of all", "of one"])
@pytest.mark.parametrize("wanted", FILTERS, ids=lambda wanted: "+".join(wanted) or "none")
def test_pages_have_all_that_meet_every_filter_newest_first(
    database: Database,
    organization_id: UUID,
    monkeypatch: pytest.MonkeyPatch,
    wanted: dict[str, Any],
    user_id: UUID | None,
    looked_at: int,
    few: int,
) -> None:
    monkeypatch.setattr(usage, "RECENT_RECORDS", looked_at)
    monkeypatch.setattr(usage, "MAX_SORTED_RECORDS", few)
    seen: list[UUID] = []
    cursor: UUID | None = None
    while cursor is not None or not seen:
        with database.autocommit() as session:
            page = list_usage_records(
                session,
                organization_id,
                user_id=user_id,
                wanted=RecordFilter(**wanted),
                cursor=cursor,
                limit=2,
            )
        seen += [record.invocation_id for record in page.items]
        if page.next_cursor is None:
            break
        cursor = UUID(page.next_cursor)
    assert seen == expected(wanted, user_id)


def expected(wanted: dict[str, Any], user_id: UUID | None) -> list[UUID]:
    equal = {name: value for name, value in wanted.items() if not name.endswith("_at")}
    if user_id is not None:
        equal["user_id"] = user_id
    met = [
        (call["occurred_at"], call["invocation_id"])
        for call in CALLS
        if all(call[name] == value for name, value in equal.items())
        and wanted.get("starts_at", BEGAN) <= call["occurred_at"]
        and call["occurred_at"] < wanted.get("ends_at", datetime.max.replace(tzinfo=UTC))
    ]
    return [invocation_id for _, invocation_id in sorted(met, reverse=True)]


RECORDS, MODELS, WITH_USER, WITH_PRINCIPAL = 20_000, 20, 20, 25
PAGE, NEWEST = 10, 100
_FILL = text(
    """
INSERT INTO usage_records (invocation_id, organization_id, model, prompt_tokens, completion_tokens, cached_tokens,
    reasoning_tokens, cost, status, is_estimated, user_id, principal_id, occurred_at)
SELECT gen_random_uuid(), :organization_id, 'acme/' || n % :models, 1, 1, 0, 0, 1, 'completed', false,
    CASE WHEN n % :with_user = 0 THEN CAST(:user_id AS uuid) ELSE gen_random_uuid() END,
    CASE WHEN n % :with_principal = 1 THEN CAST(:principal_id AS uuid) ELSE gen_random_uuid() END,
    CAST(:began AS timestamptz) + make_interval(secs => n)
FROM generate_series(1, :records) AS n
"""
)


@pytest.fixture(scope="module")
def large(database: Database) -> Iterator[UUID]:
    """Return an organization in which a thousand calls match each filter, and few or none match two of them."""
    organization_id = uuid4()
    values = {
        "organization_id": str(organization_id),
        "models": MODELS,
        "with_user": WITH_USER,
        "with_principal": WITH_PRINCIPAL,
        "user_id": str(USERS[0]),
        "principal_id": str(PRINCIPALS[0]),
        "began": BEGAN,
        "records": RECORDS,
    }
    with database.transaction() as session:
        session.execute(_FILL, values)
    with database.transaction() as session:
        session.execute(text("ANALYZE usage_records"))
    yield organization_id
    forget(database, organization_id)


@pytest.mark.parametrize(
    ("user_id", "wanted"),
    [
        (None, {"model": "acme/3", "principal_id": PRINCIPALS[0]}),
        (USERS[0], {"principal_id": PRINCIPALS[0]}),
    ],
    ids=["model+principal", "user+principal"],
)
def test_page_without_matches_reads_only_some_newest_records(
    database: Database,
    large: UUID,
    monkeypatch: pytest.MonkeyPatch,
    user_id: UUID | None,
    wanted: dict[str, Any],
) -> None:
    monkeypatch.setattr(usage, "RECENT_RECORDS", NEWEST)
    with recorded_statements(database) as statements, database.autocommit() as session:
        page = list_usage_records(session, large, user_id=user_id, wanted=RecordFilter(**wanted), limit=PAGE)
    assert page.items == ()
    for statement in statements:
        read, plan = rows_read(database, statement)
        assert read <= NEWEST + PAGE, plan
