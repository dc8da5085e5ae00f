"""What a session chooses for itself: the organization that it looks at, and light or dark."""

from flask import Response

from shared.identity.directory.organizations import list_organizations
from shared.identity.sign_in.console_sessions import select_session_organization
from web.console import cookies
from web.console.declarations import ROOT, ConsoleRoutes, go_to
from web.console.forms import read_id, wrong
from web.console.page_context import PageContext
from web.console.pages.sign_in import local
from web.console.queries import CursorQuery

routes = ConsoleRoutes("choices")


@routes.page("/organizations", summary="List the organizations to choose from", query=CursorQuery)
def show_organizations(context: PageContext) -> Response:
    with context.services.database.autocommit() as session:
        listed = list_organizations(session, actor=context.actor, **context.call.query.position)
    return context.render("organizations.html", listed=listed)


@routes.action(
    "/organizations", summary="Set the organization that the session looks at", rest=None, command=None
)
def choose_organization(context: PageContext) -> Response:
    chosen = read_id(context.form, "organization")
    with context.services.database.transaction() as session:
        select_session_organization(session, actor=context.actor, organization_id=chosen)
    return go_to(ROOT)


@routes.action("/theme", summary="Set light, dark, or what the system has", rest=None, command=None)
def choose_theme(context: PageContext) -> Response:
    chosen = context.form.get("theme", "")
    if chosen not in cookies.THEMES:
        raise wrong("theme", f"must be one of {', '.join(cookies.THEMES)}")
    return cookies.keep_theme(go_to(local(context.form.get("next"))), chosen)
