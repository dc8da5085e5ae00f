"""Usage reports over HTTP: by any dimension, as a series, filtered, as JSON and as CSV."""

import csv
import io
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from werkzeug.test import TestResponse

from shared.credits.holds import Attribution
from shared.credits.usage import usage_reports
from shared.identity.access.roles import Role
from tests.shared.credits.calls import Calls
from tests.support.data.identity import Person
from tests.support.web.web_process import Front

DAEMON, KEY = uuid4(), uuid4()


@dataclass(frozen=True, kw_only=True)
class World:
    """An organization whose member and agent have called two models."""

    front: Front
    calls: Calls
    admin: Person
    member: Person

    def ask(self, query: str = "", *, by: Person | None = None, accept: str | None = None) -> TestResponse:
        headers = {"Authorization": (by or self.admin).authorization} | ({"Accept": accept} if accept else {})
        return self.front.client.get(f"/v1/usage{query}", headers=headers)

    def report(self, query: str = "", *, by: Person | None = None) -> Any:
        answer = self.ask(query, by=by)
        assert answer.status_code == 200, answer.get_json()
        return answer.get_json()

    def table(self, query: str, accept: str = "text/csv") -> list[list[str]]:
        answer = self.ask(query, accept=accept)
        assert (answer.status_code, answer.content_type) == (200, "text/csv; charset=utf-8")
        return list(csv.reader(io.StringIO(answer.text, newline="")))


@pytest.fixture
def world(front: Front) -> World:
    organization_id = front.identity.organization().id
    member = front.identity.person(organization_id)
    calls = Calls(front.services.database, organization_id)
    calls.top_up(1_000_000)
    own = Attribution(user_id=member.user_id, api_key_id=KEY)
    calls.charge(30, model="acme/one", attribution=own)
    calls.charge(12, model="acme/two", attribution=own)
    calls.charge(50, model="acme/one", attribution=Attribution(identity_id=DAEMON))
    admin = front.identity.person(organization_id, Role.WORKSPACE_ADMIN)
    return World(front=front, calls=calls, admin=admin, member=member)


def test_one_request_returns_five_metrics_of_each_model(world: World) -> None:
    report = world.report("?group_by=model,principal")
    person, names = str(world.member.user_id), ("invocations", "prompt_tokens", "completion_tokens", "cost")
    assert [(row["keys"], *(row[name] for name in names)) for row in report["data"]] == [
        ({"model": "acme/one", "principal": str(DAEMON)}, 1, 50, 0, "0.00005"),
        ({"model": "acme/one", "principal": person}, 1, 30, 0, "0.00003"),
        ({"model": "acme/two", "principal": person}, 1, 12, 0, "0.000012"),
    ]
    assert (report["group_by"], report["total"]["cost"]) == ("model,principal", "0.000092")


def test_a_report_by_one_dimension_reads_as_it_always_did(world: World) -> None:
    report = world.report("?window=24h&group_by=key")
    assert [(row["key"], row["keys"], row["cost"]) for row in report["data"]] == [
        (None, {"key": None}, "0.00005"),
        (str(KEY), {"key": str(KEY)}, "0.000042"),
    ]
    assert (report["object"], report["window"], report["group_by"]) == ("usage", "24h", "key")
    assert (report["interval"], report["is_truncated"]) == (None, False)
    starts_at, ends_at = (datetime.fromisoformat(report[name]) for name in ("starts_at", "ends_at"))
    assert ends_at - starts_at == timedelta(hours=24)


@pytest.mark.parametrize("interval", ["hour", "day"])
def test_usage_series_has_a_sum_for_each_step_with_usage(world: World, interval: str) -> None:
    now = datetime.now(UTC)
    world.calls.run(
        "UPDATE usage_records SET occurred_at = :at WHERE model = 'acme/two'", at=now - timedelta(days=2)
    )
    start = f"{(now - timedelta(days=3)).replace(tzinfo=None).isoformat()}Z"
    report = world.report(f"?from={start}&interval={interval}")
    earlier = (now - timedelta(days=2)).replace(minute=0, second=0, microsecond=0)
    first = earlier.replace(hour=0) if interval == "day" else earlier
    found = [(datetime.fromisoformat(row["starts_at"]), row["keys"], row["cost"]) for row in report["data"]]
    assert found[0] == (first, {}, "0.000012")
    assert sum(row["invocations"] for row in report["data"]) == report["total"]["invocations"] == 3
    assert (report["window"], report["interval"], report["group_by"]) == (None, interval, "")


def test_filters_keep_matching_calls(world: World) -> None:
    person = world.member.user_id
    for query, cost in (
        ("model=acme/one", "0.00008"),
        (f"principal={DAEMON}", "0.00005"),
        (f"principal={person}", "0.000042"),
        (f"user={person}&model=acme/two", "0.000012"),
        (f"identity={DAEMON}", "0.00005"),
        (f"key={KEY}", "0.000042"),
        (f"deployment={uuid4()}", "0"),
        (f"distribution={uuid4()}", "0"),
    ):
        assert world.report(f"?{query}")["total"]["cost"] == cost, query


def test_member_sees_only_own_usage_with_any_parameters(world: World) -> None:
    report = world.report("?group_by=principal,model", by=world.member)
    assert {row["keys"]["principal"] for row in report["data"]} == {str(world.member.user_id)}
    assert world.report(f"?principal={DAEMON}", by=world.member)["total"]["invocations"] == 0
    other = world.front.identity.person(world.calls.organization_id)
    assert world.report(f"?user={world.member.user_id}", by=other)["total"]["invocations"] == 0


@pytest.mark.parametrize(
    ("query", "status", "parameter"),
    [
        ("?window=24h&from=2026-01-01T00:00:00Z", 422, "window"),
        ("?to=2026-01-01T00:00:00Z", 422, "from"),
        ("?from=2026-01-01T00:00:00Z&to=2025-01-01T00:00:00Z", 422, "to"),
        ("?from=2020-01-01T00:00:00Z", 422, "from"),
        ("?from=yesterday", 422, "from"),
        ("?group_by=model,colour", 422, "group_by"),
        ("?group_by=", 422, "group_by"),
        ("?interval=minute", 422, "interval"),
        ("?key=none", 400, "key"),
        ("?group_by=model&group_by=key", 400, "group_by"),
        ("?starts_at=2026-01-01T00:00:00Z", 400, "starts_at"),
    ],
)
def test_invalid_parameters_are_refused_by_name(
    world: World, query: str, status: int, parameter: str
) -> None:
    refused = world.ask(query, accept="text/csv")
    assert (refused.status_code, refused.get_json()["error"]["param"]) == (status, parameter)


def test_a_report_is_a_table_for_spreadsheets_where_that_is_preferred(world: World) -> None:
    table = world.table("?group_by=model,key", "text/html, application/json;q=0.5, text/csv")
    assert table == [
        ["model", "key", "invocations", "prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens",
         "cache_write_tokens", "reasoning_tokens", "cost"],
        ["acme/one", "", "1", "50", "0", "50", "0", "0", "0", "0.00005"],
        ["acme/one", str(KEY), "1", "30", "0", "30", "0", "0", "0", "0.00003"],
        ["acme/two", str(KEY), "1", "12", "0", "12", "0", "0", "0", "0.000012"],
    ]  # fmt: skip
    series = world.table("?interval=day&group_by=model")
    assert series[0][:2] == ["starts_at", "model"]
    assert datetime.fromisoformat(series[1][0]).hour == 0


@pytest.mark.parametrize(
    "accept", [None, "*/*", "text/csv;q=0", "text/csv;q=0.4, application/json", "text/html"]
)
def test_a_report_is_json_for_everybody_else(world: World, accept: str | None) -> None:
    answer = world.ask(accept=accept)
    assert (answer.content_type, answer.headers["Vary"]) == ("application/json", "Accept")


@pytest.mark.parametrize("model", ["=cmd|' /C calc'!A0", "+1", "-1", "@acme/one"])
def test_a_cell_of_a_table_is_never_a_formula(world: World, model: str) -> None:
    world.calls.charge(1, model=model)
    cells = [row[0] for row in world.table("?group_by=model")]
    assert f"'{model}" in cells
    assert model not in cells


def test_long_usage_report_is_truncated_as_json_and_refused_as_csv(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_reports, "MAX_GROUPS", 1)
    report = world.report()
    assert ([row["key"] for row in report["data"]], report["is_truncated"]) == (["acme/one"], True)
    assert report["total"]["cost"] == "0.000092"
    assert world.ask(accept="text/csv").status_code == 422


def test_a_record_names_its_principal(world: World) -> None:
    page = world.front.get("/v1/usage/records", world.admin.authorization).get_json()
    found = [(UUID(record["principal_id"]), record["api_key_id"]) for record in page["data"]]
    person = (world.member.user_id, str(KEY))
    assert found == [(DAEMON, None), person, person]
