"""Limits that an owner sets in the console: the models of a key, the spending of a month, suspensions."""

from collections.abc import Callable

import pytest

from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.identity.directory.memberships import add_member
from tests.support.data.identity import Person
from tests.support.web.browser import Browser
from tests.support.web.web_process import Front
from tests.web.console.conftest import with_organization

SignedIn = Callable[[Person], Browser]


@pytest.fixture
def person(front: Front) -> Person:
    return front.identity.person(front.identity.organization().id, Role.WORKSPACE_OWNER)


@pytest.fixture
def owner(front: Front, person: Person, signed_in: SignedIn) -> Browser:
    browser = signed_in(person)
    (organization,) = (front.get("/admin/organizations", person.authorization).json or {})["organizations"]
    return with_organization(organization["id"], browser)


def test_a_key_is_limited_to_some_models_and_freed_again(
    front: Front, person: Person, owner: Browser
) -> None:
    page = f"/console/keys/{person.api_key_id}/models"
    assert "may call every model" in owner.get(page).text
    assert owner.submit(page, page).status == 422
    assert (
        owner.submit(page, page, **{"model:acme/<b>large": "on", "model:acme/small": "on"}).location == page
    )
    shown = owner.get(page).text
    assert "these models only" in shown
    assert "acme/&lt;b&gt;large" in shown
    allowed = front.get("/v1/key", person.authorization).json or {}
    assert allowed["data"]["models"] == ["acme/<b>large", "acme/small"]
    assert owner.submit(page, f"{page}/remove").location == page
    assert "may call every model" in owner.get(page).text


def test_a_month_is_limited_and_the_limit_lifted(owner: Browser) -> None:
    page = "/console/ledger"
    assert owner.submit(page, "/console/spending/policy", limit="much").status == 422
    assert owner.submit(page, "/console/spending/policy", limit="12.5").location == page
    assert 'value="12.50"' in owner.get(page).text
    assert "of 12.50" in owner.get("/console").text
    assert owner.submit(page, "/console/spending/policy").location == page
    assert "no limit" in owner.get("/console").text


def test_an_operator_is_offered_to_lift_their_own_suspension_alone(front: Front, signed_in: SignedIn) -> None:
    organization_id, operator = front.identity.organization().id, front.identity.operator()
    owner = front.identity.person(organization_id, Role.WORKSPACE_OWNER)
    with front.services.database.transaction() as session:
        add_member(
            session,
            actor=OPERATOR,
            organization_id=organization_id,
            email=operator.email,
            role=Role.WORKSPACE_OWNER,
        )
    browsers = [with_organization(organization_id, signed_in(person)) for person in (operator, owner)]
    page = "/console/ledger"
    assert browsers[0].submit(page, "/console/spending/suspend").location == page
    assert ["/console/spending/resume" in browser.get(page).text for browser in browsers] == [True, False]
    assert browsers[0].submit(page, "/console/spending/resume").location == page
    assert "/console/spending/suspend" in browsers[0].get(page).text


def test_operators_see_processes_queues_and_sweeps(front: Front, owner: Browser, signed_in: SignedIn) -> None:
    assert owner.get("/console/operations").status == 403
    page = signed_in(front.identity.operator()).get("/console/operations").text
    assert "files" in page
    assert "METRICS_DIRECTORY is not set" in page
    assert "The broker is unavailable" not in page
