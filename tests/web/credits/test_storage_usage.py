"""Storage cost by day, for the organization and for its administrators."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from deploy.embedded.postgres import EmbeddedPostgres
from shared.identity.access.roles import Role
from tests.shared.files.metering.stored_months import DAY, Month, midnight_before
from tests.support.data.identity import Person
from tests.support.data.moved_clock import MovedClock
from tests.support.web.web_process import Front

GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class World:
    """An organization that stored 60 GiB for three days, and 30 GiB for the two days before; and its callers."""

    front: Front
    organization_id: UUID
    owner: Person
    member: Person
    today: datetime

    def usage(self, query: str = "") -> Any:
        return self.front.get(f"/v1/usage/storage{query}", self.owner.authorization).get_json()


@pytest.fixture(scope="module")
def world(postgres_server: EmbeddedPostgres, front: Front) -> World:
    organization_id = front.identity.organization().id
    database = front.services.database
    today = midnight_before(-1)
    MovedClock(postgres_server, database).move_to(today + DAY / 2)  # so that no day ends during the test
    with database.transaction() as session:
        began = {"at": today - 5 * DAY}
        session.execute(text("INSERT INTO storage_mark (id, measured_to) VALUES (1, :at)"), began)
    month = Month(database, [organization_id], starts_at=today - 5 * DAY)
    kept = month.upload(today - 5 * DAY, 30 * GIB)
    month.replace(kept, today - 3 * DAY, 30 * GIB)
    month.accrue(datetime.now(UTC), price=1_000_000)
    return World(
        front=front,
        organization_id=organization_id,
        owner=front.identity.person(organization_id, Role.WORKSPACE_OWNER),
        member=front.identity.person(organization_id),
        today=today,
    )


def test_storage_is_reported_day_by_day_newest_first(world: World) -> None:
    report = world.usage()
    assert (report["object"], report["window"], report["stored_bytes"]) == ("usage.storage", "30d", 60 * GIB)
    assert report["total"]["cost"] == "8"
    present, *over = report["data"]
    assert (present["day"], present["price"], present["cost"]) == (world.today.date().isoformat(), None, None)
    assert 0 <= present["byte_days"] < 60 * GIB
    assert [(at["byte_days"], at["cost"], at["price"]) for at in over] == [
        *[(60 * GIB, "2", "1")] * 3,
        *[(30 * GIB, "1", "1")] * 2,
    ]
    assert report["total"]["byte_days"] == sum(at["byte_days"] for at in report["data"])


def test_a_window_is_a_number_of_days(world: World) -> None:
    assert len(world.usage("?window=24h")["data"]) == 2
    assert len(world.usage("?window=7d")["data"]) == 6


def test_administrators_read_the_same_in_their_dialect(world: World) -> None:
    path = f"/admin/organizations/{world.organization_id}/storage-usage?window=7d"
    shown = world.front.get(path, world.owner.authorization).get_json()
    assert (shown["storedBytes"], shown["cost"], len(shown["days"])) == (60 * GIB, "8", 6)
    assert shown["days"][1] == {
        "day": (world.today - DAY).date().isoformat(),
        "storedBytes": 60 * GIB,
        "byteDays": 60 * GIB,
        "price": "1",
        "priceDays": 30,
        "cost": "2",
    }
    refused = world.front.get(path, world.member.authorization)
    assert (refused.status_code, refused.get_json()["code"]) == (403, "permission_denied")


def test_the_organization_owes_for_it(world: World) -> None:
    shown = world.front.get("/v1/credits", world.owner.authorization).get_json()
    assert (shown["balance"], shown["spent_this_month"]) == ("-8", "8")
    assert shown["storage_overdue_since"] is not None
    entries = f"/admin/organizations/{world.organization_id}/credits/entries"
    newest = world.front.get(entries, world.owner.authorization).get_json()["entries"][0]
    day = (world.today - DAY).date().isoformat()
    assert (newest["kind"], newest["reference"], newest["amount"]) == ("storage", day, "-2")


def test_organization_without_files_has_zero_usage(front: Front, world: World) -> None:
    organization_id = front.identity.organization().id
    owner = front.identity.person(organization_id, Role.WORKSPACE_OWNER)
    report = front.get("/v1/usage/storage", owner.authorization).get_json()
    assert (report["stored_bytes"], report["total"], report["data"]) == (0, {"byte_days": 0, "cost": "0"}, [])
    assert report["measured_to"] is not None


def test_storage_groups_of_any_dimensions_add_up_to_the_amount_charged(world: World) -> None:
    report = world.usage("?group_by=purpose,distribution")
    assert (report["group_by"], report["is_truncated"]) == ("purpose,distribution", False)
    (group,) = report["groups"]
    assert group["keys"] == {"purpose": "AgentArtifact", "distribution": None}
    assert (group["cost"], group["stored_bytes"]) == (report["total"]["cost"], report["stored_bytes"])
    assert (world.usage()["groups"], world.usage()["group_by"]) == ([], "")
    (by_owner,) = world.usage("?group_by=owner")["groups"]
    path = f"/admin/organizations/{world.organization_id}/storage-usage?groupBy=owner"
    shown = world.front.get(path, world.owner.authorization).get_json()
    assert shown["groups"] == [
        {
            "keys": by_owner["keys"],
            "storedBytes": by_owner["stored_bytes"],
            "byteDays": by_owner["byte_days"],
            "cost": by_owner["cost"],
        }
    ]


def test_a_report_on_a_month_has_the_days_of_that_month(world: World) -> None:
    first = (world.today - DAY).replace(day=1)
    report = world.usage(f"?month={first:%Y-%m}&group_by=owner")
    assert (report["window"], report["month"]) == (None, f"{first:%Y-%m}")
    assert {day["day"][:7] for day in report["data"]} == {f"{first:%Y-%m}"}
    assert sum(float(group["cost"]) for group in report["groups"]) == float(report["total"]["cost"])
    empty = world.usage("?month=2020-02")
    assert (empty["data"], empty["total"]["cost"], empty["stored_bytes"]) == ([], "0", 60 * GIB)


@pytest.mark.parametrize(
    ("query", "name", "status"),
    [
        ("group_by=model", "group_by", 422),
        ("group_by=", "group_by", 422),
        ("group_by=owner,", "group_by", 422),
        ("month=2026-13", "month", 422),
        ("month=2026-1", "month", 422),
        ("window=1h", "window", 422),
        ("window=7d&month=2026-02", "window", 422),
    ],
)
def test_invalid_parameters_are_refused(world: World, query: str, name: str, status: int) -> None:
    refused = world.front.get(f"/v1/usage/storage?{query}", world.owner.authorization)
    assert (refused.status_code, refused.get_json()["error"]["param"]) == (status, name)
    path = (
        f"/admin/organizations/{world.organization_id}/storage-usage?{query.replace('group_by', 'groupBy')}"
    )
    assert world.front.get(path, world.owner.authorization).status_code == status


def test_groups_of_another_organization_are_nobodys_business(front: Front, world: World) -> None:
    stranger = front.identity.person(front.identity.organization().id, Role.WORKSPACE_OWNER)
    assert front.get("/v1/usage/storage?group_by=owner", stranger.authorization).get_json()["groups"] == []
    path = f"/admin/organizations/{world.organization_id}/storage-usage?groupBy=owner"
    assert front.get(path, stranger.authorization).status_code == 404
    assert front.get("/v1/usage/storage?group_by=owner", world.member.authorization).status_code == 403
