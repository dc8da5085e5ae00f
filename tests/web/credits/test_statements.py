"""Statements over HTTP: JSON, CSV files, and permissions."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from shared.identity.access.roles import Role
from tests.shared.credits.calls import Calls
from tests.support.data.identity import Person
from tests.support.web.web_process import Front


@pytest.fixture
def calls(front: Front) -> Calls:
    calls = Calls(front.services.database, front.identity.organization().id)
    calls.top_up(10_000_000)
    calls.charge(1_500_000)
    return calls


@pytest.fixture
def month(calls: Calls) -> str:
    """The month in which the organization was charged."""
    return f"{datetime.now(UTC):%Y-%m}"


@pytest.fixture
def admin(front: Front, calls: Calls) -> Person:
    return front.identity.person(calls.organization_id, Role.WORKSPACE_ADMIN)


def path(organization_id: UUID, month: str = "") -> str:
    return f"/admin/organizations/{organization_id}/credits/statements{month and '/'}{month}"


def test_a_statement_opens_sums_by_kind_and_closes(
    front: Front, calls: Calls, admin: Person, month: str
) -> None:
    answer = front.get(path(calls.organization_id, month), admin.authorization)
    assert answer.get_json() == {
        "organizationId": str(calls.organization_id),
        "month": month,
        "opening": "0",
        "lines": [
            {"kind": "top_up", "entries": 1, "amount": "10"},
            {"kind": "adjustment", "entries": 0, "amount": "0"},
            {"kind": "charge", "entries": 1, "amount": "-1.5"},
            {"kind": "correction", "entries": 0, "amount": "0"},
            {"kind": "storage", "entries": 0, "amount": "0"},
        ],
        "closing": "8.5",
        "isFinal": False,
    }


def test_statement_is_a_csv_file_if_accepted(front: Front, calls: Calls, admin: Person, month: str) -> None:
    headers = {"Authorization": admin.authorization, "Accept": "text/csv"}
    answer = front.client.get(path(calls.organization_id, month), headers=headers)
    assert answer.content_type == "text/csv; charset=utf-8"
    assert answer.headers["Content-Disposition"] == f'attachment; filename="statement-{month}.csv"'
    assert answer.text.splitlines() == [
        "month,line,entries,amount",
        f"{month},opening,,0",
        f"{month},top_up,1,10",
        f"{month},adjustment,0,0",
        f"{month},charge,1,-1.5",
        f"{month},correction,0,0",
        f"{month},storage,0,0",
        f"{month},closing,,8.5",
    ]
    listed = front.client.get(path(calls.organization_id), headers=headers)
    assert listed.text.splitlines() == ["month,opening,closing", f"{month},0,8.5"]


def test_statements_are_listed(front: Front, calls: Calls, admin: Person, month: str) -> None:
    answer = front.get(f"{path(calls.organization_id)}?limit=5", admin.authorization)
    assert answer.get_json() == {
        "statements": [{"month": month, "opening": "0", "closing": "8.5", "isFinal": False}],
        "nextCursor": None,
    }
    before = front.get(f"{path(calls.organization_id)}?cursor={month}", admin.authorization)
    assert before.get_json()["statements"] == []


@pytest.mark.parametrize("month", ["2026-13", "2026-1", "26-01", "2999-01", "now"])
def test_invalid_or_future_month_is_not_found(front: Front, calls: Calls, admin: Person, month: str) -> None:
    assert front.get(path(calls.organization_id, month), admin.authorization).status_code == 404


def test_a_cursor_that_is_no_month_is_wrong(front: Front, calls: Calls, admin: Person) -> None:
    answer = front.get(f"{path(calls.organization_id)}?cursor=2026-13", admin.authorization)
    assert answer.status_code == 422


def test_others_read_no_statement(front: Front, calls: Calls, month: str) -> None:
    stranger = front.identity.person(front.identity.organization().id, Role.WORKSPACE_OWNER)
    for at in (path(calls.organization_id), path(calls.organization_id, month)):
        assert front.get(at, stranger.authorization).status_code == 404
