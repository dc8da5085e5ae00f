"""Attacks on the console: forms of other sites, pages in frames, markup in names of files and distributions.

Other attacks: planted sessions in `test_sessions.py` and `test_provider_sign_in.py`, ids of another organization in
`tests/web/test_cross_organization.py`, texts of agents in `test_task_pages.py`, replies of models in
`tests/journeys/models/test_playground.py`, and messages of networks in `test_action_items.py`.
"""

import re
from collections.abc import Callable, Iterator

import pytest
from markupsafe import escape

from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.identity.directory.distributions import create_distribution
from tests.support.data.identity import Person
from tests.support.files.file_requests import Asker
from tests.support.web.browser import Browser
from tests.support.web.web_process import Front
from tests.web.console.conftest import with_organization
from tests.web.files.conftest import agent_of
from web.console.routes import PAGES

MARKUP = "<img src=x onerror=alert(1)>"
ESCAPED = "&lt;img src=x onerror=alert(1)&gt;"
NOBODY = "01890000-0000-7000-8000-000000000000"


@pytest.fixture
def agent(front: Front) -> Asker:
    return agent_of(front, front.identity.deployment(front.identity.organization().id, MARKUP))


@pytest.fixture
def owner(front: Front, agent: Asker, signed_in: Callable[[Person], Browser]) -> Browser:
    assert agent.organization_id is not None
    person = front.identity.person(agent.organization_id, Role.WORKSPACE_OWNER)
    return with_organization(agent.organization_id, signed_in(person))


def addresses(method: str) -> Iterator[str]:
    """Return the path of every page, or of every form, with ids that do not exist."""
    for routes in PAGES:
        for route in routes.declared:
            if route.method == method:
                yield re.sub(r"<[^>]+>", NOBODY, route.path.replace("<month:month>", "2026-01"))


def test_no_form_is_taken_from_elsewhere_or_without_the_sessions_token(owner: Browser) -> None:
    token = owner.get("/console/organizations").token
    honest = {"csrf": token}
    for path in addresses("POST"):
        assert owner.post(path, honest, {"Sec-Fetch-Site": "cross-site"}).status == 403, path
        # A subdomain is the same site and another origin.
        assert owner.post(path, honest, {"Sec-Fetch-Site": "same-site"}).status == 403, path
        assert owner.post(path, {}).status == 403, path
    assert owner.get("/console/organizations").status == 200  # and nobody was signed out


def test_no_page_can_be_framed(owner: Browser, anonymous: Browser) -> None:
    for path in addresses("GET"):
        for browser in (owner, anonymous):
            answer = browser.get(path)
            if "text/html" in answer.headers["Content-Type"] and answer.status != 303:
                assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"], path
    elsewhere = owner.get("/console", {"Sec-Fetch-Dest": "iframe", "Sec-Fetch-Site": "cross-site"})
    assert "frame-ancestors 'none'" in elsewhere.headers["Content-Security-Policy"]


def test_a_name_of_a_file_is_text_wherever_it_stands(agent: Asker, owner: Browser) -> None:
    name = f"'{MARKUP}.txt"
    stored = agent.upload(file_name=name)
    assert stored.status_code == 201, stored.text
    page = f"/console/files/{(stored.json or {})['id']}"
    version = (stored.json or {})["versionId"]
    for path in (page, "/console/files"):
        assert f"<bdi>{escape(name)}</bdi>" in owner.get(path).text, path
    shared = owner.submit(page, f"{page}/share", version=version, life="3600")
    assert shared.status == 200, shared.text
    for shown in (owner.get(page), owner.get("/console/files"), owner.get("/console/people/audit"), shared):
        assert "<img" not in shown.text


def test_names_of_distributions_and_agents_are_text_wherever_they_stand(
    front: Front, agent: Asker, owner: Browser
) -> None:
    assert agent.organization_id is not None
    principal = front.identity.principal(agent.organization_id, MARKUP)
    deployment = front.identity.deployment(agent.organization_id, MARKUP)
    with front.services.database.transaction() as session:
        made = create_distribution(
            session,
            front.settings,
            actor=OPERATOR,
            organization_id=agent.organization_id,
            name=MARKUP,
            networks=["slack"],
            principal_identity_id=principal.id,
            deployment_id=deployment.deployment.id,
        )
    for path in (
        *("/console/distributions", f"/console/distributions/{made.distribution.id}"),
        *("/console/agents", f"/console/agents/{deployment.deployment.id}"),
        "/console/people/identities",
    ):
        page = owner.get(path).text
        assert "<img" not in page, path
        assert ESCAPED in page, path
