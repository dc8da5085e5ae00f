"""The declarations of pages and actions: each part that a new page leaves out fails one of these tests.

A new page is its module in `web/console/pages`, its template, and its line in `web/console/routes.py`.
"""

import ast
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

from deploy.cli.main import main
from shared.identity.access.permissions import Permission
from tests.support.web.browser import Browser
from tests.support.web.web_process import Front
from web.console import pages
from web.console.declarations import SIGN_IN, ConsoleAction, ConsoleRoutes
from web.console.navigation import Group, Page
from web.console.routes import NAVIGATION, PAGES
from web.error_responses.html_errors import is_console_path
from web.framework.authentication import Authentication
from web.framework.routes import Route

DECLARED = [route for routes in PAGES for route in routes.declared]
ACTIONS = [action for routes in PAGES for action in routes.actions]
DECLARED_PAGES = [page for routes in PAGES for page in routes.pages]
SESSION_ACTIONS = {
    "/console/in",
    "/console/out",
    "/console/step-up",
    "/console/organizations",
    "/console/theme",
}
"""Actions that concern only the session itself."""
WITHOUT_STEP_UP = {
    "/console/models/ask": "costs what a call costs, which budgets bound",
    "/console/agents/<id:deployment_id>/talk": "costs what a reply costs, which budgets bound",
    "/console/tasks/<id:task_id>/say": "costs what a reply costs, which budgets bound",
    "/console/tasks/<id:task_id>/cancel": "ends a task that its user started",
    "/console/agents/<id:deployment_id>/endpoint/check": "only reads the endpoint",
    "/console/distributions/<id:distribution_id>/imports/<id:import_id>/retry": "retries a failed import",
    "/console/distributions/<id:distribution_id>/imports/retry": "retries failed imports",
    "/console/distributions/<id:distribution_id>/notifications/<id:notification_id>/resend": "resends",
    "/console/distributions/<id:distribution_id>/notifications/replay": "resends",
    "/console/distributions/<id:distribution_id>/resend": "resends",
    "/console/files/<id:file_id>/links/<id:grant_id>/revoke": "ends a link",
    "/console/people/invitations/<id:invitation_id>/revoke": "ends an invitation",
    "/console/people/identities": "creates an identity without rights",
}
"""Why these actions ask for no fresh proof of identity (docs/specification/identity.md#credentials)."""
_PARAMETER = re.compile(r"<[^>]+>")
_TEMPLATES = Path(pages.__file__).parents[1] / "templates" / "console"
_REFERENCE = re.compile(r"""\{% (?:extends|include|import) "console/([^"]+)""")


def rendered_templates() -> Iterator[tuple[str, str]]:
    """Yield each page module with a template that it names."""
    for module in sorted(Path(pages.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(module.read_text())):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and node.value.endswith(".html")
            ):
                yield module.name, node.value.removeprefix("console/")


def test_each_page_module_is_registered() -> None:
    modules = [import_module(f"{pages.__name__}.{at.name}") for at in pkgutil.iter_modules(pages.__path__)]
    unregistered = [at.__name__ for at in modules for routes in vars(at).values()
                    if isinstance(routes, ConsoleRoutes) and routes not in PAGES]  # fmt: skip
    assert unregistered == [], "add its routes to PAGES in web/console/routes.py"
    assert len(modules) == len(PAGES)


def test_each_rendered_template_exists() -> None:
    assert [at for at in rendered_templates() if not (_TEMPLATES / at[1]).is_file()] == []


def test_each_template_is_rendered_or_included() -> None:
    used = {template for _, template in rendered_templates()}
    used.update(name for path in _TEMPLATES.glob("*.html") for name in _REFERENCE.findall(path.read_text()))
    assert {path.name for path in _TEMPLATES.glob("*.html")} - used == set()


@pytest.mark.parametrize("page", DECLARED_PAGES, ids=lambda page: page.path)
def test_a_page_belongs_to_one_entry_of_the_navigation(page: Page) -> None:
    entries = {at.path for at in DECLARED_PAGES if isinstance(at.navigation, Group)}
    assert page.navigation is None or isinstance(page.navigation, Group) or page.navigation in entries
    links = [link for _, group in NAVIGATION.groups(page.path, is_operator=True) for link in group]
    assert len([link for link in links if link.is_current]) == (page.navigation is not None)


def test_the_navigation_offers_pages_of_operators_to_operators_alone() -> None:
    def paths(*, is_operator: bool) -> set[str]:
        groups = NAVIGATION.groups("/console", is_operator=is_operator)
        return {link.path for _, links in groups for link in links}

    operators = {at.path for at in DECLARED_PAGES if at.permission is Permission.INSTALLATION_OPERATE}
    assert paths(is_operator=True) - paths(is_operator=False) == operators


def test_the_tabs_of_a_page_are_those_of_its_entry() -> None:
    names = [(tab.name, tab.is_current) for tab in NAVIGATION.tabs("/console/ledger/holds")]
    assert names == [("Entries", False), ("Held", True), ("Storage", False)]
    assert [tab.path for tab in NAVIGATION.tabs("/console/ledger/2026-01") if tab.is_current] == []


@pytest.mark.parametrize("route", DECLARED, ids=lambda route: f"{route.method} {route.path}")
def test_a_route_of_the_console_needs_a_session(anonymous: Browser, route: Route) -> None:
    assert is_console_path(route.path)
    assert route.authentication is Authentication.SESSION
    path = route.path.replace("<month:month>", "2026-01")
    path = _PARAMETER.sub("01890000-0000-7000-8000-000000000000", path)
    answer = anonymous.ask(route.method, path, "" if route.method == "POST" else None)
    assert (answer.status, answer.location) == (303, SIGN_IN)


def test_every_post_is_an_action() -> None:
    posts = {route.path for route in DECLARED if route.method != "GET"}
    assert posts == {action.path for action in ACTIONS}


def test_each_action_without_step_up_is_listed_with_its_reason() -> None:
    assert {at.path for at in ACTIONS if not at.requires_step_up} - SESSION_ACTIONS == set(WITHOUT_STEP_UP)


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: str(action.path))
def test_an_action_names_an_operation_of_rest_and_a_command(front: Front, action: ConsoleAction) -> None:
    if action.path in SESSION_ACTIONS:
        assert (action.rest, action.command) == (None, None)
        return
    operations = {route.name for route in front.app.extensions["routes"] if not route.hidden}
    assert action.rest in operations
    command: click.Command | None = main
    for word in (action.command or "").split():
        if isinstance(command, click.Group):
            command = command.get_command(click.Context(command), word)
    assert command not in (None, main), action
