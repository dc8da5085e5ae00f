"""Every page and action of the console: what it needs, and what does the same elsewhere."""

import re

import click
import pytest

from deploy.cli.main import main
from tests.support.browser import Browser
from tests.support.front import Front
from web.console.declarations import SIGN_IN, ConsoleAction
from web.console.navigation import navigation
from web.console.routes import PAGES
from web.error_responses.html_errors import speaks_html
from web.framework.authentication import Authentication
from web.framework.routes import Route

DECLARED = [route for routes in PAGES for route in routes.declared]
TWINS = [twins for routes in PAGES for twins in routes.twins]
ALONE = {"/console/step-up", "/console/organizations", "/console/top-up", "/console/activity.csv"}
"""Pages without the navigation, and what is no page."""
OWN = {"/console/in", "/console/out", "/console/step-up", "/console/organizations", "/console/theme"}
"""What only concerns the session itself."""
WITHOUT_PROOF = {
    "/console/models/ask": "costs what a call costs, which budgets bound",
    "/console/agents/<id:deployment_id>/talk": "costs what an answer costs, which budgets bound",
    "/console/tasks/<id:task_id>/say": "costs what an answer costs, which budgets bound",
    "/console/tasks/<id:task_id>/cancel": "ends what its user began",
    "/console/agents/<id:deployment_id>/endpoint/check": "looks",
    "/console/distributions/<id:distribution_id>/imports/<id:import_id>/retry": "does once more what failed",
    "/console/distributions/<id:distribution_id>/imports/retry": "does once more what failed",
    "/console/distributions/<id:distribution_id>/notifications/<id:notification_id>/resend": "sends once more",
    "/console/distributions/<id:distribution_id>/notifications/replay": "sends once more",
    "/console/distributions/<id:distribution_id>/resend": "sends once more",
    "/console/files/<id:file_id>/links/<id:grant_id>/revoke": "takes back what was shared",
    "/console/people/invitations/<id:invitation_id>/revoke": "takes back what was offered",
    "/console/people/identities": "makes a name without rights",
}
"""Why nobody need prove for it that they are still who signed in (docs/specification/identity.md#credentials)."""
_PARAMETER = re.compile(r"<[^>]+>")


@pytest.mark.parametrize("route", DECLARED, ids=lambda route: f"{route.method} {route.path}")
def test_nothing_is_shown_or_done_without_a_session(stranger: Browser, route: Route) -> None:
    assert speaks_html(route.path)
    assert route.authentication is Authentication.SESSION
    path = route.path.replace("<month:month>", "2026-01")
    path = _PARAMETER.sub("01890000-0000-7000-8000-000000000000", path)
    answer = stranger.ask(route.method, path, "" if route.method == "POST" else None)
    assert (answer.status, answer.location) == (303, SIGN_IN)


def test_every_post_is_an_action() -> None:
    posts = {route.path for route in DECLARED if route.method != "GET"}
    assert posts == {twins.path for twins in TWINS}


def test_an_action_needs_a_fresh_proof_unless_it_is_known_why_not() -> None:
    assert {twins.path for twins in TWINS if not twins.needs_proof} - OWN == set(WITHOUT_PROOF)


@pytest.mark.parametrize("twins", TWINS, ids=lambda twins: str(twins.path))
def test_an_action_has_an_operation_of_rest_and_a_command_that_do_the_same(
    front: Front, twins: ConsoleAction
) -> None:
    if twins.path in OWN:
        assert (twins.rest, twins.command) == (None, None)
        return
    operations = {route.name for route in front.app.extensions["routes"] if not route.hidden}
    assert twins.rest in operations
    command: click.Command | None = main
    for word in (twins.command or "").split():
        if isinstance(command, click.Group):
            command = command.get_command(click.Context(command), word)
    assert command not in (None, main), twins


@pytest.mark.parametrize("path", sorted({route.path for route in DECLARED if route.method == "GET"} - ALONE))
def test_a_page_stands_at_one_place_of_the_navigation(path: str) -> None:
    places = [place for _, group in navigation(path, is_operator=True) for place in group]
    assert len([place for place in places if place.is_here]) == 1
