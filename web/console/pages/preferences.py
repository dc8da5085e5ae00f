"""The preferences of a session: its organization, and the light or dark theme."""

from flask import Response

from shared.identity.directory.organizations import list_organizations
from shared.identity.sign_in.console_sessions import select_session_organization
from web.console import cookies
from web.console.declarations import ConsoleRoutes, go_to
from web.console.forms import choose, read_id
from web.console.navigation import ROOT
from web.console.page_context import PageContext
from web.console.pages.sign_in import local_path
from web.console.queries import CursorQuery

routes = ConsoleRoutes("preferences")


@routes.page(
    "/organizations",
    title="Organizations",
    permission=None,
    navigation=None,
    summary="List the organizations to choose from",
    query=CursorQuery,
)
def show_organizations(context: PageContext) -> Response:
    with context.services.database.autocommit() as session:
        listed = list_organizations(session, actor=context.actor, **context.call.query.position)
    return context.render("organizations.html", listed=listed)


@routes.action(
    "/organizations", summary="Set the organization that the session shows", rest=None, command=None
)
def choose_organization(context: PageContext) -> Response:
    chosen = read_id(context.form, "organization")
    with context.services.database.transaction() as session:
        select_session_organization(session, actor=context.actor, organization_id=chosen)
    # Do not return to the open page: its resource may belong to the previous organization.
    return go_to(ROOT)


@routes.action(
    "/theme", summary="Set the theme: light, dark, or that of the operating system", rest=None, command=None
)
def choose_theme(context: PageContext) -> Response:
    chosen = choose(context.form, "theme", cookies.THEMES)
    return cookies.set_theme(go_to(local_path(context.form.get("next"))), chosen)
