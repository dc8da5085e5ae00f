"""A distribution creates attributions for the requests that it routes, and for no others."""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from werkzeug.test import TestResponse

from shared.identity.access.authorization import OPERATOR
from shared.identity.directory import deployments, distributions, identities, organizations
from shared.identity.directory.deployments import CreatedDeployment
from shared.identity.directory.distributions import CreatedDistribution
from shared.identity.directory.identities import Identity
from tests.support.web.web_process import Front

REPORTED = {
    "messageId": "m-1",
    "channel": "slack",
    "reportedCaller": {"id": "U123", "display": "Ada"},
}


@dataclass(frozen=True, kw_only=True)
class Route:
    """A distribution, its receiving identity, and the deployment that replies."""

    distribution: CreatedDistribution
    principal: Identity
    deployment: CreatedDeployment

    @property
    def authorization(self) -> str:
        return f"Bearer {self.distribution.token.value}"


@pytest.fixture
def route(front: Front) -> Route:
    organization = front.identity.organization()
    deployment = front.identity.deployment(organization.id)
    principal = front.identity.principal(organization.id)
    distribution = front.identity.distribution(
        organization.id, principal_id=principal.id, deployment_id=deployment.deployment.id
    )
    return Route(distribution=distribution, principal=principal, deployment=deployment)


def attribute(front: Front, authorization: str | None, **options: Any) -> TestResponse:
    return front.post("/oauth/attributions", authorization, **({"json": REPORTED} | options))


def list_files(front: Front, deployment: CreatedDeployment, attribution: str) -> TestResponse:
    headers = {"Service-Usage-Attribution": attribution}
    return front.get("/files", front.identity.authorization(deployment), headers=headers)


def test_a_distribution_gets_the_header_for_its_receiving_identity(front: Front, route: Route) -> None:
    answer = attribute(front, route.authorization)
    assert answer.status_code == 201
    assert answer.headers["Cache-Control"] == "no-store"
    minted = answer.get_json()
    payload = minted["attribution"].split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["sub"] == str(route.principal.id)
    assert claims["deployment_id"] == str(route.deployment.deployment.id)
    assert claims["payer"] == str(route.deployment.deployment.organization_id)
    assert claims["txn"] == minted["transactionId"]
    assert claims["rctx"]["reported_caller"] == {"id": "U123", "display": "Ada"}
    assert list_files(front, route.deployment, minted["attribution"]).status_code == 200


def test_nothing_needs_to_be_reported(front: Front, route: Route) -> None:
    assert attribute(front, route.authorization, json={}).status_code == 201


def test_the_header_is_worthless_to_another_deployment(front: Front, route: Route) -> None:
    header = attribute(front, route.authorization).get_json()["attribution"]
    other = front.identity.deployment(route.deployment.deployment.organization_id)
    answer = list_files(front, other, header)
    assert (answer.status_code, answer.get_json()["code"]) == (403, "attribution_mismatch")


def test_only_a_distribution_attributes(front: Front, route: Route) -> None:
    owner = front.identity.person(route.deployment.deployment.organization_id)
    for authorization in (owner.authorization, front.identity.authorization(route.deployment)):
        answer = attribute(front, authorization)
        assert (answer.status_code, answer.get_json()["code"]) == (403, "permission_denied")
    answer = attribute(front, None)
    assert (answer.status_code, answer.get_json()["code"]) == (401, "authentication_required")


@pytest.mark.parametrize("path", ["/files", "/admin/me", "/admin/organizations"])
def test_a_distribution_reaches_nothing_else(front: Front, route: Route, path: str) -> None:
    answer = front.get(path, route.authorization)
    assert (answer.status_code, answer.get_json()["code"]) == (403, "permission_denied")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"principalIdentityId": "01a1fe71-8d97-7487-81f7-c15f2bf488a1"}, 400),
        ({"payer": "x"}, 400),
        ({"messageId": "x" * 201}, 422),
        ({"messageId": ""}, 422),
        ({"messageId": 1}, 422),
        ({"reportedCaller": {"display": "Ada"}}, 422),
        ({"reportedCaller": {"id": "U1", "role": "owner"}}, 400),
        ([], 400),
    ],
)
def test_a_distribution_chooses_nothing_but_what_it_reports(
    front: Front, route: Route, body: object, status: int
) -> None:
    assert attribute(front, route.authorization, json=body).status_code == status


REFUSING: dict[str, tuple[int, str, tuple[int, str], Callable[..., object]]] = {
    "disabled distribution": (
        401,
        "invalid_token",
        (401, "attribution_invalid"),
        lambda session, route: distributions.disable_distribution(
            session, actor=OPERATOR, distribution_id=route.distribution.distribution.id
        ),
    ),
    "disabled deployment": (
        409,
        "target_disabled",
        (401, "invalid_token"),
        lambda session, route: deployments.disable_deployment(
            session, actor=OPERATOR, deployment_id=route.deployment.deployment.id
        ),
    ),
    "disabled principal": (
        409,
        "target_disabled",
        (401, "attribution_invalid"),
        lambda session, route: identities.disable_identity(
            session, actor=OPERATOR, identity_id=route.principal.id
        ),
    ),
    "suspended organization": (
        403,
        "organization_suspended",
        (403, "organization_suspended"),
        lambda session, route: organizations.suspend_organization(
            session, actor=OPERATOR, organization_id=route.principal.organization_id
        ),
    ),
}


@pytest.mark.parametrize(("status", "code", "of_earlier", "halt"), REFUSING.values(), ids=REFUSING.keys())
def test_what_is_halted_is_not_attributed_and_earlier_headers_end(
    front: Front,
    route: Route,
    status: int,
    code: str,
    of_earlier: tuple[int, str],
    halt: Callable[..., object],
) -> None:
    header = attribute(front, route.authorization).get_json()["attribution"]
    token = front.identity.authorization(route.deployment)
    with front.services.database.transaction() as session:
        halt(session, route)
    answer = attribute(front, route.authorization)
    assert (answer.status_code, answer.get_json()["code"]) == (status, code)
    old = front.get("/files", token, headers={"Service-Usage-Attribution": header})
    assert (old.status_code, old.get_json()["code"]) == of_earlier


def test_after_a_rotation_both_tokens_attribute_until_the_overlap_ends(front: Front, route: Route) -> None:
    owner = front.identity.operator()
    path = f"/admin/distributions/{route.distribution.distribution.id}/rotate-token"
    rotated = front.post(f"{path}?overlapSeconds=60", owner.authorization).get_json()["token"]
    assert attribute(front, f"Bearer {rotated}").status_code == 201
    assert attribute(front, route.authorization).status_code == 201
    front.post(f"{path}?overlapSeconds=0", owner.authorization)
    assert attribute(front, f"Bearer {rotated}").status_code == 401
    assert attribute(front, route.authorization).status_code == 401
