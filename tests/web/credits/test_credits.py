"""Credits and usage over HTTP: reports, permissions, and error formats."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text
from werkzeug.test import TestResponse

from shared.credits.holds import Attribution
from shared.identity.access.roles import Role
from tests.shared.credits.calls import Calls
from tests.support.data.identity import Person
from tests.support.web.web_process import Front


@dataclass(frozen=True, kw_only=True)
class World:
    """An organization with credits, and its callers."""

    front: Front
    calls: Calls
    owner: Person
    admin: Person
    member: Person
    operator: Person

    @property
    def path(self) -> str:
        return f"/admin/organizations/{self.calls.organization_id}"

    def top_up(self, person: Person, **body: Any) -> TestResponse:
        return self.front.post(f"{self.path}/credits/top-ups", person.authorization, json=body)

    def adjust(self, person: Person, **body: Any) -> TestResponse:
        return self.front.post(f"{self.path}/credits/adjustments", person.authorization, json=body)

    def set_policy(self, person: Person, **body: Any) -> TestResponse:
        return self.front.put(f"{self.path}/credit-policy", person.authorization, json=body)

    def act(self, person: Person, act: str) -> TestResponse:
        return self.front.post(f"{self.path}/credits/{act}", person.authorization)

    def credits(self) -> Any:
        return self.front.get("/v1/credits", self.owner.authorization).get_json()


@pytest.fixture
def world(front: Front) -> World:
    make = front.identity
    organization_id = make.organization().id
    return World(
        front=front,
        calls=Calls(front.services.database, organization_id),
        owner=make.person(organization_id, Role.WORKSPACE_OWNER),
        admin=make.person(organization_id, Role.WORKSPACE_ADMIN),
        member=make.person(organization_id),
        operator=make.operator(),
    )


def token_of_deployment(front: Front, organization_id: UUID) -> str:
    created = front.identity.deployment(organization_id)
    form = {
        "grant_type": "client_credentials",
        "client_id": str(created.deployment.client_id),
        "client_secret": created.credential.secret.value,
    }
    return f"Bearer {front.post('/oauth/token', data=form).get_json()['access_token']}"


def test_credits_are_decimal_strings(world: World) -> None:
    world.calls.top_up(1_500_000)
    world.calls.hold(250_001)
    assert world.credits() == {
        "object": "credits",
        "balance": "1.5",
        "held": "0.250001",
        "available": "1.249999",
        "policy": "active",
        "suspended_by": [],
        "overdraft": "0",
        "spending_limit": None,
        "spent_this_month": "0",
        "storage_overdue_since": None,
        "storage_refused_from": None,
    }


def test_an_organization_that_never_had_credits_has_none(world: World) -> None:
    assert world.credits()["balance"] == "0"


def test_a_top_up_counts_once_for_each_reference(world: World) -> None:
    first = world.top_up(world.operator, amount="12.5", reference="invoice 1")
    again = world.top_up(world.operator, amount="12.5", reference="invoice 1")
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.get_json() == {**again.get_json(), "replayed": False}
    assert (first.get_json()["amount"], first.get_json()["balanceAfter"], first.get_json()["version"]) == (
        "12.5",
        "12.5",
        1,
    )
    other = world.top_up(world.operator, amount="12.6", reference="invoice 1")
    assert (other.status_code, other.get_json()["code"]) == (409, "reference_conflict")
    assert world.credits()["balance"] == "12.5"


@pytest.mark.parametrize("amount", ["0", "-1", "1e3", "0.0000001", "1000000001", 5, 0.5, None])
def test_an_amount_has_one_spelling(world: World, amount: object) -> None:
    refused = world.top_up(world.operator, amount=amount, reference="x")
    assert (refused.status_code, refused.get_json()["code"]) == (422, "validation_failed")
    assert refused.get_json()["errors"][0]["name"] == "amount"


def test_an_adjustment_of_either_sign_counts_once_for_each_reference(world: World) -> None:
    world.top_up(world.operator, amount="2", reference="same")
    first = world.adjust(world.operator, amount="-3.5", reference="same")
    again = world.adjust(world.operator, amount="-3.5", reference="same")
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.get_json() == {**again.get_json(), "replayed": False}
    shown = first.get_json()
    assert (shown["kind"], shown["amount"], shown["balanceAfter"]) == ("adjustment", "-3.5", "-1.5")
    other = world.adjust(world.operator, amount="3.5", reference="same")
    assert (other.status_code, other.get_json()["code"]) == (409, "reference_conflict")
    assert world.adjust(world.operator, amount="4", reference="other").get_json()["balanceAfter"] == "2.5"


@pytest.mark.parametrize("amount", ["0", "-0", "--1", "+1", "- 1", "1e3", "-1000000001", -5, None])
def test_the_amount_of_an_adjustment_has_one_spelling(world: World, amount: object) -> None:
    refused = world.adjust(world.operator, amount=amount, reference="x")
    assert (refused.status_code, refused.get_json()["code"]) == (422, "validation_failed")
    assert refused.get_json()["errors"][0]["name"] == "amount"


def test_an_adjustment_beyond_what_a_balance_holds_is_refused(world: World, front: Front) -> None:
    beyond = "UPDATE credit_balances SET posted = 4000000000000000000 WHERE organization_id = :id"
    world.calls.top_up(1)
    with front.services.database.transaction() as session:
        session.execute(text(beyond), {"id": world.calls.organization_id})
    refused = world.adjust(world.operator, amount="1", reference="x")
    assert (refused.status_code, refused.get_json()["code"]) == (422, "balance_out_of_range")


def test_references_of_different_organizations_do_not_meet(world: World, front: Front) -> None:
    world.top_up(world.operator, amount="1", reference="same")
    other = Calls(front.services.database, front.identity.organization().id)
    assert not other.top_up(5, "same").is_replayed


def test_only_operators_make_credits(world: World) -> None:
    world.calls.top_up(1_000_000)
    for person in (world.owner, world.admin, world.member):
        for act in (world.top_up, world.adjust):
            refused = act(person, amount="1000000", reference=str(uuid4()))
            assert (refused.status_code, refused.get_json()["code"]) == (403, "permission_denied")
    assert world.credits()["balance"] == "1"
    assert world.top_up(world.operator, amount="1", reference=str(uuid4())).status_code == 201


def test_an_operators_key_that_is_bound_to_the_organization_makes_none(world: World) -> None:
    body = {"name": "bound", "organizationId": str(world.calls.organization_id)}
    member = {"email": world.operator.email, "role": "WorkspaceOwner"}
    assert (
        world.front.post(f"{world.path}/members", world.operator.authorization, json=member).status_code
        == 201
    )
    key = world.front.post("/admin/api-keys", world.operator.authorization, json=body).get_json()["apiKey"]
    for entries in ("top-ups", "adjustments"):
        refused = world.front.post(
            f"{world.path}/credits/{entries}", f"Bearer {key}", json={"amount": "1", "reference": "x"}
        )
        assert (refused.status_code, refused.get_json()["code"]) == (403, "permission_denied")


def test_only_owners_and_operators_set_the_policy(world: World) -> None:
    for person, status in (
        (world.owner, 200),
        (world.operator, 200),
        (world.admin, 403),
        (world.member, 403),
    ):
        assert world.set_policy(person, policy="limit", spendingLimit="5").status_code == status
        assert world.act(person, "suspend").status_code == status
        assert world.act(person, "resume").status_code == status


def test_an_owner_does_not_lend_itself_an_overdraft(world: World) -> None:
    refused = world.set_policy(world.owner, policy="active", overdraft="1000000")
    assert (refused.status_code, refused.get_json()["code"]) == (403, "permission_denied")
    assert world.credits()["overdraft"] == "0"
    assert world.set_policy(world.operator, policy="active", overdraft="2").get_json()["overdraft"] == "2"
    # The operator's overdraft is kept when the owner sets a limit, with or without repeating it.
    for body in ({}, {"overdraft": "2"}):
        limited = world.set_policy(world.owner, policy="limit", spendingLimit="10", **body)
        assert (limited.get_json()["overdraft"], limited.get_json()["spendingLimit"]) == ("2", "10")
    assert world.credits()["available"] == "2"
    assert world.set_policy(world.owner, policy="active", overdraft="1").status_code == 403
    active = world.set_policy(world.operator, policy="active", overdraft="0").get_json()
    assert (active["spendingLimit"], active["overdraft"]) == (None, "0")


def test_each_side_lifts_its_own_suspension_only(world: World) -> None:
    world.calls.top_up(5_000_000)
    world.set_policy(world.owner, policy="limit", spendingLimit="3")
    assert world.act(world.operator, "suspend").get_json()["suspendedBy"] == ["operator"]
    assert world.act(world.owner, "suspend").get_json()["suspendedBy"] == ["owner", "operator"]
    for lifted in (
        world.act(world.owner, "resume"),
        world.set_policy(world.owner, policy="limit", spendingLimit="4"),
    ):
        shown = lifted.get_json()
        assert (shown["policy"], shown["suspendedBy"], shown["available"]) == ("suspended", ["operator"], "0")
    assert world.set_policy(world.owner, policy="suspended").get_json()["suspendedBy"] == [
        "owner",
        "operator",
    ]
    assert world.act(world.operator, "resume").get_json()["suspendedBy"] == ["owner"]
    resumed = world.act(world.owner, "resume").get_json()
    assert (resumed["policy"], resumed["suspendedBy"], resumed["available"]) == ("limit", [], "4")


def test_every_act_of_authority_over_credits_is_audited(world: World) -> None:
    world.top_up(world.operator, amount="3", reference="invoice")
    world.act(world.operator, "suspend")
    world.act(world.operator, "suspend")
    world.act(world.owner, "suspend")
    world.act(world.owner, "resume")
    world.set_policy(world.owner, policy="limit", spendingLimit="3")
    world.adjust(world.operator, amount="-1", reference="mistake")
    world.adjust(world.operator, amount="-1", reference="mistake")
    events = world.front.get(f"{world.path}/audit-events", world.owner.authorization).get_json()[
        "auditEvents"
    ]
    acts = [(event["action"], event["actorId"], event["details"].get("suspendedBy")) for event in events][:6]
    owner, operator = str(world.owner.user_id), str(world.operator.user_id)
    assert acts == [
        ("credits.adjustment", operator, None),
        ("credit_policy.set", owner, None),
        ("credits.resumed", owner, "owner"),
        ("credits.suspended", owner, "owner"),
        ("credits.suspended", operator, "operator"),
        ("credits.top_up", operator, None),
    ]


@pytest.mark.parametrize("policy", [{"policy": "limit"}, {"policy": "active", "spendingLimit": "5"}])
def test_a_spending_limit_goes_with_the_policy_limit_only(world: World, policy: dict[str, str]) -> None:
    refused = world.set_policy(world.owner, **policy)
    assert refused.status_code == 422
    assert refused.get_json()["errors"][0]["name"] == "spendingLimit"


def test_the_ledger_is_read_page_by_page_newest_first(world: World) -> None:
    for amount in (1, 2, 3):
        world.calls.top_up(amount * 1_000_000)
    path = f"{world.path}/credits/entries"
    page = world.front.get(f"{path}?limit=2", world.admin.authorization).get_json()
    assert [entry["amount"] for entry in page["entries"]] == ["3", "2"]
    rest = world.front.get(
        f"{path}?limit=2&cursor={page['nextCursor']}", world.admin.authorization
    ).get_json()
    assert ([entry["balanceAfter"] for entry in rest["entries"]], rest["nextCursor"]) == (["1"], None)
    assert world.front.get(path, world.member.authorization).status_code == 403


def test_usage_is_summed_by_requested_dimension_including_the_last_call(world: World) -> None:
    principal, user = uuid4(), world.owner.user_id
    world.calls.top_up(1_000_000)
    world.calls.charge(30, model="acme/one", attribution=Attribution(user_id=user, principal_id=principal))
    world.calls.charge(50, model="acme/two", attribution=Attribution(user_id=user))
    report = world.front.get("/v1/usage?window=7d&group_by=model", world.admin.authorization).get_json()
    assert (report["window"], report["group_by"], report["is_truncated"]) == ("7d", "model", False)
    assert [(group["key"], group["cost"]) for group in report["data"]] == [
        ("acme/two", "0.00005"),
        ("acme/one", "0.00003"),
    ]
    assert (report["total"]["invocations"], report["total"]["total_tokens"]) == (2, 80)
    for group_by, keys in (
        ("principal", [str(user), str(principal)]),
        ("user", [str(user)]),
        ("identity", [None]),
    ):
        answer = world.front.get(f"/v1/usage?group_by={group_by}", world.admin.authorization).get_json()
        assert [group["key"] for group in answer["data"]] == keys


def test_usage_records_are_read_page_by_page_newest_first(world: World) -> None:
    world.calls.top_up(1_000_000)
    for tokens in (1, 2, 3):
        world.calls.charge(tokens)
    path = "/v1/usage/records"
    page = world.front.get(f"{path}?limit=2", world.admin.authorization).get_json()
    assert [record["prompt_tokens"] for record in page["data"]] == [3, 2]
    assert page["has_more"]
    rest = world.front.get(
        f"{path}?limit=2&cursor={page['next_cursor']}", world.admin.authorization
    ).get_json()
    assert [record["cost"] for record in rest["data"]] == ["0.000001"]
    assert (rest["has_more"], rest["next_cursor"], rest["object"]) == (False, None, "list")
    assert rest["data"][0].keys() == {
        "object", "invocation_id", "model", "provider", "status", "prompt_tokens", "completion_tokens",
        "total_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens", "cost", "is_estimated", "user_id",
        "identity_id", "principal_id", "deployment_id", "api_key_id", "distribution_id", "occurred_at", "corrected_at",
    }  # fmt: skip


def test_another_organizations_record_is_no_cursor(world: World, front: Front) -> None:
    other = Calls(front.services.database, front.identity.organization().id)
    other.top_up(10)
    invocation_id, token = other.dispatched(1)
    other.settle(invocation_id, token, 1)
    refused = front.get(f"/v1/usage/records?cursor={invocation_id}", world.owner.authorization)
    assert (refused.status_code, refused.get_json()["error"]["param"]) == (422, "cursor")


READS = ("/v1/credits", "/v1/usage", "/v1/usage/records", "/v1/usage/storage")


def test_member_reads_only_its_own_usage(world: World) -> None:
    world.calls.top_up(1_000_000)
    own, others = Attribution(user_id=world.member.user_id), Attribution(user_id=world.owner.user_id)
    for tokens, who in ((1, own), (2, others), (3, own), (4, Attribution(identity_id=uuid4()))):
        world.calls.charge(tokens, model=f"acme/{tokens}", attribution=who)
    report = world.front.get("/v1/usage", world.member.authorization).get_json()
    assert [group["key"] for group in report["data"]] == ["acme/3", "acme/1"]
    assert (report["total"]["invocations"], report["total"]["total_tokens"]) == (2, 4)
    page = world.front.get("/v1/usage/records?limit=1", world.member.authorization).get_json()
    assert ([record["prompt_tokens"] for record in page["data"]], page["has_more"]) == ([3], True)
    path = f"/v1/usage/records?cursor={page['next_cursor']}"
    rest = world.front.get(path, world.member.authorization).get_json()
    assert ([record["prompt_tokens"] for record in rest["data"]], rest["has_more"]) == ([1], False)


OF_ALL = ("/v1/credits", "/v1/usage/storage")


@pytest.mark.parametrize(
    ("path", "who"), [*((path, "deployment") for path in READS), *((path, "member") for path in OF_ALL)]
)
def test_members_and_deployments_lack_the_permission(world: World, path: str, who: str) -> None:
    deployment = token_of_deployment(world.front, world.calls.organization_id)
    refused = world.front.get(path, world.member.authorization if who == "member" else deployment)
    assert refused.status_code == 403
    assert refused.get_json()["error"]["type"] == "permission_error"
    assert refused.get_json()["error"]["code"] == "permission_denied"
    assert refused.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("path", READS)
def test_a_user_without_an_organization_is_asked_to_select_one(world: World, path: str) -> None:
    refused = world.front.get(path, world.operator.authorization)
    assert refused.status_code == 400
    assert refused.get_json()["error"]["code"] == "billing_organization_required"


REFUSALS = [
    ("/v1/credits", None, 401, "authentication_error", "invalid_api_key", None),
    ("/v1/credits", "Bearer svk_wrong", 401, "authentication_error", "invalid_api_key", None),
    ("/v1/usage?window=1h", "owner", 422, "invalid_request_error", "validation_failed", "window"),
    ("/v1/usage?since=0", "owner", 400, "invalid_request_error", "unknown_parameter", "since"),
    ("/v1/nothing", "owner", 404, "invalid_request_error", "not_found", None),
]


@pytest.mark.parametrize(("path", "who", "status", "kind", "code", "param"), REFUSALS)
def test_refusals_below_v1_speak_the_clients_dialect(
    world: World, path: str, who: str | None, status: int, kind: str, code: str, param: str | None
) -> None:
    credential = world.owner.authorization if who == "owner" else who
    refused = world.front.get(path, credential)
    error = refused.get_json()["error"]
    assert (refused.status_code, error["type"], error["code"], error["param"]) == (status, kind, code, param)
    assert error["message"]
    assert refused.headers["x-request-id"]
    assert refused.headers["x-should-retry"] == "false"
    assert refused.content_type == "application/json"


def test_unsupported_method_is_refused_in_the_error_format_of_the_path(world: World) -> None:
    refused = world.front.post("/v1/credits", world.owner.authorization)
    assert (refused.status_code, refused.get_json()["error"]["code"]) == (405, "method_not_allowed")
