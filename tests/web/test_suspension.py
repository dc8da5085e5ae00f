"""A suspended organization gets 403 `organization_suspended` on every route, for all its callers."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from werkzeug.test import TestResponse

from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.identity.directory.memberships import add_member
from shared.identity.directory.organizations import resume_organization, suspend_organization
from tests.web.test_cross_organization import OPERATIONS, World, bearer
from tests.web.test_cross_organization import world as world  # noqa: PLC0414 (a fixture)

OWN_USER = {"read_me", "select_active_organization"}
"""Operations that a user's unbound key may still call, so that the user can select another organization."""
OF_DISTRIBUTIONS = {
    name
    for name, (_, path, _) in OPERATIONS.items()
    if path.startswith(("/distributions/", "/oauth/attributions")) and "webhooks" not in path
}
"""Operations with a distribution's token. Webhooks are signed, and have tests of their own."""
OF_CALLERS = {
    name
    for name, (method, path, _) in OPERATIONS.items()
    if method != "OPTIONS" and not path.startswith(("/distributions/", "/oauth/", "/payments/"))
}
"""Payments are signed by who was paid, and add credits to a suspended organization too."""


@pytest.fixture(scope="module")
def suspended(world: World) -> Iterator[World]:
    front = world.front
    operator = front.identity.operator()
    with front.services.database.transaction() as session:
        add_member(
            session,
            actor=OPERATOR,
            organization_id=world.acme,
            email=operator.email,
            role=Role.WORKSPACE_OWNER,
        )
    headers = bearer(operator.authorization)
    choice = {"organizationId": str(world.acme)}
    chosen = front.client.put("/admin/me/active-organization", headers=headers, json=choice)
    assert chosen.status_code == 200, chosen.text
    with front.services.database.transaction() as session:
        suspend_organization(session, actor=OPERATOR, organization_id=world.acme)
    yield replace(world, insiders={**world.insiders, "operator": headers})
    with front.services.database.transaction() as session:
        resume_organization(session, actor=OPERATOR, organization_id=world.acme)


def serves(kind: str, name: str) -> bool:
    """Return whether an operation serves these callers although their organization is suspended."""
    path = OPERATIONS[name][1]
    if kind == "operator":
        return path.startswith("/admin")
    return name in OWN_USER and kind in ("owner", "admin", "member")


@pytest.mark.parametrize("name", sorted(OF_CALLERS))
def test_every_operation_refuses_a_suspended_organization(suspended: World, name: str) -> None:
    for kind, headers in suspended.insiders.items():
        if not serves(kind, name):
            assert_suspended(suspended.ask(name, headers), kind)


@pytest.mark.parametrize("name", sorted(OF_DISTRIBUTIONS))
def test_its_distributions_are_refused_as_well(suspended: World, name: str) -> None:
    assert_suspended(suspended.ask(name, suspended.insiders["distribution"]), "distribution")


def assert_suspended(answer: TestResponse, kind: str) -> None:
    assert answer.status_code == 403, (kind, answer.status_code, answer.text)
    assert "organization_suspended" in answer.text.lower() or answer.request.method == "HEAD", answer.text
