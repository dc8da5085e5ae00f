"""What a session chooses for itself: the organization that it looks at, and light or dark."""

from flask import Response

from shared.identity.directory.organizations import list_organizations
from shared.identity.sign_in.console_sessions import look_at_organization
from web.console import cookies
from web.console.declarations import ROOT, ConsoleRoutes, go_to
from web.console.forms import read_id, wrong
from web.console.listings import Cursor
from web.console.pages.signing import local
from web.console.visits import PageContext

routes = ConsoleRoutes("choices")


@routes.page("/organizations", summary="List the organizations to choose from", query=Cursor)
def show_organizations(visit: PageContext) -> Response:
    with visit.services.database.autocommit() as session:
        listed = list_organizations(session, actor=visit.actor, **visit.call.query.position)
    return visit.render("organizations.html", listed=listed)


@routes.action(
    "/organizations", summary="Set the organization that the session looks at", rest=None, command=None
)
def choose_organization(visit: PageContext) -> Response:
    chosen = read_id(visit.form, "organization")
    with visit.services.database.transaction() as session:
        look_at_organization(session, actor=visit.actor, organization_id=chosen)
    return go_to(ROOT)


@routes.action("/theme", summary="Set light, dark, or what the system has", rest=None, command=None)
def choose_theme(visit: PageContext) -> Response:
    chosen = visit.form.get("theme", "")
    if chosen not in cookies.THEMES:
        raise wrong("theme", f"must be one of {', '.join(cookies.THEMES)}")
    return cookies.keep_theme(go_to(local(visit.form.get("next"))), chosen)
