"""Declare the pages and actions of the console, as `web/framework/routes.py` declares the operations of REST.

A page is a GET. Its declaration names the path, title, permission and place in the navigation. An action is a
POST. It responds with a redirect, or with a page that shows a secret once. Its declaration names the REST
operation and the command that have the same effect. All three call the same function of the domain, which
decides the permission.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from flask import Response, redirect, request

from shared.errors import PermissionDenied
from shared.identity.access.authorization import authorize_operation
from shared.identity.access.permissions import Permission
from shared.identity.errors import AuthenticationRequired, InvalidToken
from web.console import cookies, csrf
from web.console.forms import read_form
from web.console.navigation import ROOT, Group, Page
from web.console.page_context import PageContext, RedirectError, forbid_caching
from web.framework.administration import Act, administer
from web.framework.authentication import Authentication
from web.framework.calls import RequestContext
from web.framework.rendering import HTML
from web.framework.routes import Handler, Routes

SIGN_IN = f"{ROOT}/in"
PageHandler = Callable[..., Response]
View = Callable[..., Response]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleAction:
    """An action, with the REST operation and the command that have the same effect.

    Operation and command are None if the action concerns only the session.
    """

    path: str
    rest: str | None
    command: str | None
    requires_step_up: bool
    """Whether the user must have confirmed their identity within the last ten minutes."""


class ConsoleRoutes(Routes):
    """The pages and actions of one part of the console."""

    def __init__(self, tag: str) -> None:
        super().__init__(f"console {tag}")
        self.pages: list[Page] = []
        self.actions: list[ConsoleAction] = []

    def page(
        self,
        path: str,
        *,
        title: str,
        permission: Permission | None,
        navigation: Group | str | None,
        summary: str,
        tab: str | None = None,
        **options: Any,
    ) -> Callable[[PageHandler], PageHandler]:
        """Declare the decorated function as the page at `/console` and `path`.

        `navigation` is one of three: the group that lists the page; the path below `/console` of the entry
        that the page belongs to; or None for a page outside the navigation.
        """
        above = f"{ROOT}{navigation}" if isinstance(navigation, str) else navigation
        page = Page(path=f"{ROOT}{path}", title=title, permission=permission, navigation=above, tab=tab)
        self.pages.append(page)
        return self._get(page, summary=summary, **options)

    def download(
        self,
        path: str,
        *,
        permission: Permission | None,
        summary: str,
        responses: Mapping[int, Any],
        **options: Any,
    ) -> Callable[[PageHandler], PageHandler]:
        """Declare the decorated function as a GET of a file at `/console` and `path`.

        A file is no page, so it has no title.
        """
        page = Page(path=f"{ROOT}{path}", title="", permission=permission, navigation=None)
        return self._get(page, summary=summary, responses=responses, **options)

    def action(
        self,
        path: str,
        *,
        summary: str,
        rest: str | None,
        command: str | None,
        step_up: str | None = None,
        **options: Any,
    ) -> Callable[[PageHandler], PageHandler]:
        """Declare the decorated function as the action of a form.

        With `step_up` the user must have confirmed their identity shortly before. Otherwise the browser is
        sent to the confirmation, and afterwards to the page that `step_up` names.
        """
        self.actions.append(
            ConsoleAction(
                path=f"{ROOT}{path}", rest=rest, command=command, requires_step_up=step_up is not None
            )
        )

        def declare(act: PageHandler) -> PageHandler:
            def handle(call: RequestContext, **ids: Any) -> Response:
                # Check the origin before the body is read: another site must not make the server buffer its
                # form.
                csrf.check_origin(call.http, call.services.settings.base_url)
                form = read_form(call)
                csrf.check_token(call.http, cookies.find_session(call.http) or "", form.get(csrf.FIELD))
                context = PageContext(call=call, form=form)
                if step_up is not None:
                    # Check after both checks above: a form of another site must not lead the user to the
                    # step-up page.
                    context.require_step_up(step_up)
                return act(context, **ids)

            self._declare("POST", f"{ROOT}{path}", handle, act.__name__, summary=summary, **options)
            return act

        return declare

    def action_calling(
        self, path: str, function: Act, *, return_to: str, of_organization: bool = False, **declared: Any
    ) -> None:
        """Declare an action that calls one function of the domain with the ids in the path.

        The action then redirects to `return_to`, which may contain the ids, such as `{key_id}`. With
        `of_organization` the function also gets the id of the session's organization.
        """

        def handle(context: PageContext, **ids: UUID) -> Response:
            scope = {"organization_id": context.organization_id} if of_organization else {}
            administer(context.call, function, **scope, **ids)
            return go_to(return_to.format(**ids))

        # _declare() names the route after the function, and names of routes must be unique, so set the name.
        handle.__name__ = function.__name__
        self.action(path, **declared)(handle)

    def wrap(self, view: View) -> View:
        """Wrap the view of a request.

        A browser without a session is sent to the sign-in page, and caches may store no page.
        """

        def guarded(**path: Any) -> Response:
            try:
                response = view(**path)
            # Redirect to the sign-in page: REST responds with 401, but a person needs a page to sign in.
            except (AuthenticationRequired, InvalidToken):
                response = go_to(SIGN_IN)
            except RedirectError as elsewhere:
                response = go_to(elsewhere.location)
            return forbid_caching(response)

        return guarded

    def _get(self, page: Page, **options: Any) -> Callable[[PageHandler], PageHandler]:
        def declare(show: PageHandler) -> PageHandler:
            def handle(call: RequestContext, **ids: Any) -> Response:
                context = PageContext(call=call, page=page)
                # Check before any row is read. Each function of the domain authorizes again for the rows that
                # it returns.
                _check_permission(context, page.permission)
                return show(context, **ids)

            self._declare("GET", page.path, handle, show.__name__, **options)
            return show

        return declare

    def _declare(
        self,
        method: str,
        path: str,
        handle: Handler,
        name: str,
        responses: Mapping[int, Any] | None = None,
        **options: Any,
    ) -> None:
        declare = self.route(
            method,
            path,
            name=name,
            authentication=Authentication.SESSION,
            responses=responses or {200: HTML},
            # The console is not an API, so its routes are not in the OpenAPI document.
            hidden=True,
            # Members of a suspended organization may still read, switch the organization and sign out.
            serves_suspended=True,
            **options,
        )
        declare(handle)


def go_to(location: str) -> Response:
    """Return a redirect to another page.

    If a script of a page sent the request, the redirect is in a header of htmx.
    """
    if "HX-Request" in request.headers:
        # Do not send 303 to a script: fetch() would follow it and put the other page into a fragment of this
        # page.
        return Response(status=401, headers={"HX-Redirect": location})
    # Send 303 and not 302: the browser then gets the next page by GET, and a reload does not post the form
    # again.
    response = redirect(location, code=303, Response=Response)
    assert isinstance(response, Response)  # noqa: S101 (the type that was asked for)
    return response


def _check_permission(context: PageContext, permission: Permission | None) -> None:
    """Raise PermissionDenied unless the user holds the permission that the page requires."""
    if permission is Permission.INSTALLATION_OPERATE:
        # Operators hold this permission in no organization, and need not have chosen one.
        authorize_operation(context.actor)
    elif permission is not None and not context.holds(permission):
        raise PermissionDenied(permission=permission)
