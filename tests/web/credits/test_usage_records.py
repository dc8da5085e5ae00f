"""Usage records: filters and CSV files; and the open holds of calls in progress."""

import csv
import io
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from shared.credits.holds import Attribution
from shared.credits.settlement import Status
from shared.credits.usage import usage_records
from shared.identity.access.roles import Role
from tests.shared.credits.calls import Calls
from tests.support.data.identity import Person
from tests.support.web.web_process import Front

PATH = "/v1/usage/records"
KEY, PRINCIPAL, DAEMON = uuid4(), uuid4(), uuid4()


@pytest.fixture
def calls(front: Front) -> Calls:
    """Three calls: 3 tokens by a key, 5 for a principal, and 7 by a daemon, which failed two days ago."""
    calls = Calls(front.services.database, front.identity.organization().id)
    calls.top_up(1_000_000)
    calls.charge(3, model="acme/one", attribution=Attribution(user_id=uuid4(), api_key_id=KEY))
    calls.charge(5, model="acme/two", attribution=Attribution(identity_id=uuid4(), principal_id=PRINCIPAL))
    failed = calls.dispatched(7, model="acme/two", attribution=Attribution(identity_id=DAEMON))
    calls.settle(*failed, 7, status=Status.FAILED)
    calls.run(
        "UPDATE usage_records SET occurred_at = now() - interval '2 days' WHERE invocation_id = :id",
        id=failed[0],
    )
    return calls


@pytest.fixture
def admin(front: Front, calls: Calls) -> Person:
    return front.identity.person(calls.organization_id, Role.WORKSPACE_ADMIN)


def tokens(front: Front, by: Person, query: str) -> list[int]:
    answer = front.get(f"{PATH}{query}", by.authorization)
    assert answer.status_code == 200, answer.get_json()
    return [record["prompt_tokens"] for record in answer.get_json()["data"]]


def at(moment: datetime) -> str:
    return f"{moment.replace(tzinfo=None).isoformat()}Z"


def test_filters_keep_matching_records(front: Front, admin: Person) -> None:
    yesterday = at(datetime.now(UTC) - timedelta(days=1))
    for query, found in (
        ("", [5, 3, 7]),
        (f"?key={KEY}", [3]),
        ("?model=acme/two", [5, 7]),
        (f"?principal={PRINCIPAL}", [5]),
        (f"?principal={DAEMON}", [7]),
        ("?status=failed", [7]),
        ("?status=completed", [5, 3]),
        (f"?from={yesterday}", [5, 3]),
        (f"?to={yesterday}", [7]),
        (f"?model=acme/two&status=completed&principal={PRINCIPAL}", [5]),
        (f"?key={KEY}&model=acme/two", []),
    ):
        assert tokens(front, admin, query) == found, query


def test_pages_of_a_filtered_list_are_complete(front: Front, admin: Person) -> None:
    first = front.get(f"{PATH}?model=acme/two&limit=1", admin.authorization).get_json()
    assert first["has_more"]
    assert tokens(front, admin, f"?model=acme/two&limit=1&cursor={first['next_cursor']}") == [7]


def test_a_member_finds_its_own_records_only(front: Front, calls: Calls) -> None:
    member = front.identity.person(calls.organization_id)
    calls.charge(9, model="acme/two", attribution=Attribution(user_id=member.user_id))
    assert tokens(front, member, "?model=acme/two") == [9]
    assert tokens(front, member, f"?key={KEY}") == []


@pytest.mark.parametrize(
    ("query", "status", "name"),
    [("status=lost", 422, "status"), ("key=mine", 400, "key"), ("from=yesterday", 422, "from"),
     ("user=me", 400, "user")],
)  # fmt: skip
def test_invalid_filters_are_refused_by_name(
    front: Front, admin: Person, query: str, status: int, name: str
) -> None:
    refused = front.get(f"{PATH}?{query}", admin.authorization)
    assert (refused.status_code, refused.get_json()["error"]["param"]) == (status, name)


def table(front: Front, by: Person, query: str) -> list[dict[str, str]]:
    answer = front.client.get(
        f"{PATH}{query}", headers={"Authorization": by.authorization, "Accept": "text/csv"}
    )
    assert (answer.status_code, answer.content_type) == (200, "text/csv; charset=utf-8")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="usage-records.csv"'
    return list(csv.DictReader(io.StringIO(answer.text, newline="")))


def test_a_file_has_all_records_that_the_filters_keep(front: Front, admin: Person, calls: Calls) -> None:
    calls.charge(1, model="=cmd|' /C calc'!A0")
    rows = table(front, admin, "?status=completed&limit=1")
    assert [row["model"] for row in rows] == ["'=cmd|' /C calc'!A0", "acme/two", "acme/one"]
    assert (rows[2]["cost"], rows[2]["api_key_id"], rows[2]["identity_id"]) == ("0.000003", str(KEY), "")
    shown = front.get(f"{PATH}?key={KEY}", admin.authorization).get_json()["data"][0]
    assert rows[2].keys() == shown.keys() - {"object"}


def test_a_file_that_would_be_incomplete_is_refused(
    front: Front, admin: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_records, "MAX_FILE_RECORDS", 2)
    headers = {"Authorization": admin.authorization, "Accept": "text/csv"}
    refused = front.client.get(PATH, headers=headers)
    assert (refused.status_code, refused.get_json()["error"]["param"]) == (422, "from")


def holds(front: Front, calls: Calls, by: Person) -> Any:
    return front.get(f"/admin/organizations/{calls.organization_id}/credits/holds", by.authorization)


def test_open_holds_are_those_of_calls_in_progress(front: Front, calls: Calls, admin: Person) -> None:
    waiting = calls.hold(30, model="acme/one", attribution=Attribution(identity_id=DAEMON))
    running, token = calls.dispatched(20)
    listed = holds(front, calls, admin).get_json()["holds"]
    assert [(hold["id"], hold["state"], hold["hold"]) for hold in listed] == [
        (str(running), "dispatched", "0.00002"),
        (str(waiting), "held", "0.00003"),
    ]
    assert (listed[1]["principalId"], listed[1]["model"]) == (str(DAEMON), "acme/one")
    assert sum(round(float(hold["hold"]) * 1e6) for hold in listed) == calls.balance.held
    calls.settle(running, token, 20)
    calls.void(waiting)
    assert holds(front, calls, admin).get_json() == {"holds": [], "nextCursor": None}


def test_open_holds_are_newest_first_with_any_ids(front: Front, calls: Calls, admin: Person) -> None:
    """The id of an agent's call does not contain a time, because it is derived from its turn's id."""
    made = [str(calls.hold(1, invocation_id=UUID(int=at))) for at in (5, 9, 2, 7)]
    path = f"/admin/organizations/{calls.organization_id}/credits/holds"
    cursor: str | None = ""
    listed: list[str] = []
    while cursor is not None:
        page = front.get(f"{path}?limit=3{cursor and '&cursor='}{cursor}", admin.authorization).get_json()
        listed += [hold["id"] for hold in page["holds"]]
        cursor = page["nextCursor"]
    assert listed == made[::-1]


def test_open_holds_require_permission_to_read_credits(front: Front, calls: Calls) -> None:
    member = front.identity.person(calls.organization_id)
    assert holds(front, calls, member).status_code == 403
    stranger = front.identity.person(front.identity.organization().id, Role.WORKSPACE_OWNER)
    assert holds(front, calls, stranger).status_code == 404
