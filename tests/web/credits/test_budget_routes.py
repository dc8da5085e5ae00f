"""Budgets over HTTP: permissions, the error of a refused call, and what `GET /v1/key` reports."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest
from werkzeug.test import TestResponse

from shared.credits.holds import Attribution
from shared.credits.spending_limits.budgets import SubjectKind
from shared.identity.access.roles import Role
from tests.shared.credits.calls import Calls
from tests.support.data.identity import Person
from tests.support.web.web_process import Front

CHAT = {"model": "scripted/echo", "messages": [{"role": "user", "content": "hello"}]}
MICRO = 1_000_000


@dataclass(frozen=True, kw_only=True)
class World:
    """An organization with one credit, its owner, and a member with an API key."""

    front: Front
    calls: Calls
    owner: Person
    member: Person

    @property
    def path(self) -> str:
        return f"/admin/organizations/{self.calls.organization_id}"

    def create(self, subject_id: UUID | None, **body: Any) -> Any:
        new = {"subjectKind": "api_key", "subjectId": str(subject_id), "period": "day", **body}
        made = self.front.post(f"{self.path}/budgets", self.owner.authorization, json=new)
        assert made.status_code == 201, made.text
        return made.get_json()

    def call_model(self, **changes: Any) -> TestResponse:
        body = {**CHAT, **changes}
        return self.front.post("/v1/chat/completions", self.member.authorization, json=body)

    def spend(self, amount: int) -> None:
        self.calls.charge(
            amount, attribution=Attribution(user_id=self.member.user_id, api_key_id=self.member.api_key_id)
        )

    def key(self, person: Person) -> Any:
        return self.front.get("/v1/key", person.authorization).get_json()["data"]


@pytest.fixture
def world(front: Front) -> World:
    make = front.identity
    calls = Calls(front.services.database, make.organization().id)
    calls.top_up(MICRO)
    return World(
        front=front,
        calls=calls,
        owner=make.person(calls.organization_id, Role.WORKSPACE_OWNER, bound=True),
        member=make.person(calls.organization_id, bound=True),
    )


def test_a_budget_is_created_read_changed_and_deleted(world: World) -> None:
    made = world.create(world.member.api_key_id, amount="2.5", model="scripted/echo")
    assert {
        "unit": "credits",
        "amount": "2.5",
        "spent": "0",
        "held": "0",
        "remaining": "2.5",
    }.items() <= made.items()
    assert made["resetsAt"].endswith("T00:00:00Z")
    path = f"{world.path}/budgets/{made['id']}"
    assert world.front.get(path, world.owner.authorization).get_json() == made
    changed = world.front.patch(path, world.owner.authorization, json={"amount": "3"}).get_json()
    assert changed == made | {"amount": "3", "remaining": "3"}
    assert world.front.get(f"{world.path}/budgets", world.owner.authorization).get_json()["budgets"] == [
        changed
    ]
    assert world.front.delete(path, world.owner.authorization).status_code == 204
    assert world.front.get(path, world.owner.authorization).status_code == 404
    audit = world.front.get(f"{world.path}/audit-events", world.owner.authorization).get_json()["auditEvents"]
    acts = [
        (event["action"], event["details"]["amount"]) for event in audit if event["resourceKind"] == "budget"
    ]
    assert acts == [("budget.deleted", "3"), ("budget.changed", "3"), ("budget.created", "2.5")]


@pytest.mark.parametrize(
    "wrong",
    [
        {"amount": "1.5", "unit": "requests", "period": "minute"},
        {"amount": "1", "period": "minute"},
        {"amount": "1", "unit": "tokens"},
        {"amount": "-1"},
        {"amount": 1},
        {"amount": "1", "subjectKind": "organization"},
        {"amount": "1", "period": "year"},
        {"amount": "1", "model": ""},
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(world: World, wrong: dict[str, Any]) -> None:
    new = {"subjectKind": "user", "subjectId": str(world.member.user_id), "period": "day", **wrong}
    answer = world.front.post(f"{world.path}/budgets", world.owner.authorization, json=new)
    assert (answer.status_code, answer.get_json()["code"]) == (422, "validation_failed")


def test_a_member_reads_the_budgets_of_itself_and_its_keys_alone(world: World) -> None:
    own = [
        world.create(world.member.api_key_id, amount="1"),
        world.create(world.member.user_id, amount="1", subjectKind="user"),
    ]
    others = world.create(world.owner.user_id, amount="1", subjectKind="user")
    shown = world.front.get(f"{world.path}/budgets", world.member.authorization).get_json()["budgets"]
    assert shown == own
    read = world.front.get(f"{world.path}/budgets/{others['id']}", world.member.authorization)
    assert read.status_code == 404


def test_call_beyond_budget_is_refused_finally_with_remainder_and_reset_time(
    world: World,
) -> None:
    budget = world.create(world.member.api_key_id, amount="0.000001")
    world.spend(1)
    answer = world.call_model()
    error = answer.get_json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (
        402,
        "budget_exceeded",
        "insufficient_quota",
    )
    told = {"budget_id": budget["id"], "spent": "0.000001", "remaining": "0", "resets_at": budget["resetsAt"]}
    assert told.items() <= error.items()
    assert answer.headers["x-should-retry"] == "false"
    assert 1 <= int(answer.headers["Retry-After"]) <= 86_400


def test_call_beyond_a_rate_may_retry_in_the_next_minute(world: World) -> None:
    world.create(world.member.api_key_id, amount="0", unit="requests", period="minute", model="scripted/echo")
    answer = world.call_model()
    assert (answer.status_code, answer.get_json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert 1 <= int(answer.headers["Retry-After"]) <= 60
    assert answer.get_json()["error"]["unit"] == "requests"


def test_call_with_more_tokens_than_the_minute_budget_is_refused_finally(world: World) -> None:
    world.create(world.member.api_key_id, amount="1", unit="tokens", period="minute")
    answer = world.call_model()
    assert (answer.status_code, answer.headers["x-should-retry"]) == (429, "false")


def test_a_key_calls_the_models_that_it_was_allowed(world: World) -> None:
    path = f"{world.path}/api-keys/{world.member.api_key_id}/models"
    owner = world.owner.authorization
    put = world.front.put(path, owner, json={"models": ["acme/two", "acme/one", "acme/one"]})
    assert put.get_json() == {"models": ["acme/one", "acme/two"]} == world.front.get(path, owner).get_json()
    answer = world.call_model()
    error = answer.get_json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (403, "model_authorization_denied", "model")
    assert world.key(world.member)["models"] == ["acme/one", "acme/two"]
    assert world.front.delete(path, owner).status_code == 204
    assert world.front.get(path, owner).status_code == 404
    assert world.key(world.member)["models"] is None


def test_key_lists_only_its_allowed_models(world: World) -> None:
    path = f"{world.path}/api-keys/{world.member.api_key_id}/models"
    all_models = _listed(world, world.member)
    kept, hidden = all_models[0], all_models[1]
    assert world.front.put(path, world.owner.authorization, json={"models": [kept]}).status_code == 200
    assert _listed(world, world.member) == [kept]
    assert _listed(world, world.member, **{"anthropic-version": "2023-06-01"}) == [kept]
    assert _listed(world, world.owner) == all_models
    assert world.front.get(f"/v1/models/{kept}", world.member.authorization).status_code == 200
    prompt = {"model": hidden, "messages": [{"role": "user", "content": "hello"}]}
    for answer in (
        world.front.get(f"/v1/models/{hidden}", world.member.authorization),
        world.front.post("/v1/messages/count_tokens", world.member.authorization, json=prompt),
    ):
        assert (answer.status_code, answer.get_json()["error"]["code"]) == (
            403,
            "model_authorization_denied",
        )


def _listed(world: World, person: Person, **headers: str) -> list[str]:
    answer = world.front.get("/v1/models", person.authorization, headers=headers)
    return [entry["id"] for entry in answer.get_json()["data"]]


def test_key_reports_its_spending_and_remainder(world: World) -> None:
    daily = world.create(world.member.api_key_id, amount="0.0001")
    monthly = world.create(world.member.user_id, amount="1", subjectKind="user", period="month")
    world.create(world.owner.api_key_id, amount="0.00001")
    world.spend(30)
    told = world.key(world.member)
    assert told["label"] == "test"
    assert {told[name] for name in ("usage", "usage_daily", "usage_weekly", "usage_monthly")} == {"0.00003"}
    assert (told["limit"], told["limit_remaining"], told["limit_reset"]) == ("0.0001", "0.00007", "daily")
    assert [(at["id"], at["spent"]) for at in told["budgets"]] == [
        (daily["id"], "0.00003"),
        (monthly["id"], "0.00003"),
    ]
    assert world.key(world.owner)["usage"] == "0"


def test_access_token_reports_its_deployments_spending_and_remainder(world: World) -> None:
    created = world.front.identity.deployment(world.calls.organization_id)
    budget = world.create(
        created.deployment.id, subjectKind=SubjectKind.DEPLOYMENT.value, amount="1", period="once"
    )
    world.calls.charge(7, attribution=Attribution(deployment_id=created.deployment.id))
    world.calls.charge(5, attribution=Attribution(deployment_id=uuid4()))
    authorization = world.front.identity.authorization(created)
    told = world.front.get("/v1/key", authorization).get_json()["data"]
    assert (told["label"], told["usage"], told["limit_reset"]) == (None, "0.000007", None)
    assert [at["id"] for at in told["budgets"]] == [budget["id"]]


def test_key_without_an_organization_is_refused(front: Front) -> None:
    answer = front.get("/v1/key", front.identity.operator().authorization)
    assert (answer.status_code, answer.get_json()["error"]["code"]) == (400, "billing_organization_required")
