"""Lists of usage records by several filters at once: the same whichever way they are looked for."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from shared.credits import usage
from shared.credits.settlement import Status
from shared.credits.tables import usage_records
from shared.credits.usage import RecordFilter, list_usage_records
from shared.database import Database
from tests.support.planting import plant_all

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
def organization_id(database: Database) -> UUID:
    """An organization with all of the calls, among those of others that are like them."""
    organization_id = uuid4()
    others = [{**call, "invocation_id": uuid4(), "organization_id": uuid4()} for call in CALLS]
    ours = [{**call, "organization_id": organization_id} for call in CALLS]
    plant_all(database, [(usage_records, call) for call in (*ours, *others)])
    return organization_id


@pytest.mark.parametrize("looked_at", [1, 10, 1000])
@pytest.mark.parametrize("user_id", [None, USERS[0]], ids=["of all", "of one"])
@pytest.mark.parametrize("wanted", FILTERS, ids=lambda wanted: "+".join(wanted) or "none")
def test_pages_have_all_that_meet_every_filter_newest_first(
    database: Database,
    organization_id: UUID,
    monkeypatch: pytest.MonkeyPatch,
    wanted: dict[str, Any],
    user_id: UUID | None,
    looked_at: int,
) -> None:
    monkeypatch.setattr(usage, "LOOKED_AT", looked_at)
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
