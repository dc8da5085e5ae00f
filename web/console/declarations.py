"""Declare the pages and actions of the console: a sister of REST's routes, on the same way to the same functions.

A page is a GET. An action is a POST that ends in a redirect, or once in a page with a secret; it names the operation
of REST and the command that do the same. The permission is that of the function which all three call.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from flask import Response, redirect, request
from pydantic import BaseModel

from shared.identity.errors import AuthenticationRequired, InvalidToken
from web.console import cookies, csrf
from web.console.forms import read_form
from web.console.page_context import PageContext, RedirectError, forbid_caching
from web.framework.administration import Act, administer
from web.framework.authentication import Authentication
from web.framework.calls import RequestContext
from web.framework.rendering import HTML
from web.framework.routes import Handler, Routes

ROOT = "/console"
SIGN_IN = "/console/in"
Show = Callable[..., Response]
View = Callable[..., Response]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleAction:
    """An action, and what does the same elsewhere: an endpoint of REST and a command; None for a session's own acts."""

    path: str
    rest: str | None
    command: str | None
    needs_proof: bool
    """Whether its user must have proved only just who they are."""


class ConsoleRoutes(Routes):
    """The pages and actions of one part of the console."""

    def __init__(self, tag: str) -> None:
        super().__init__(f"console {tag}")
        self.twins: list[ConsoleAction] = []

    def page(
        self, path: str, *, summary: str, query: type[BaseModel] | None = None, **options: Any
    ) -> Callable[[Show], Show]:
        """Declare the decorated function as a page at `/console` and this path."""

        def declare(show: Show) -> Show:
            def handle(call: RequestContext, **ids: Any) -> Response:
                return show(PageContext(call=call), **ids)

            self._declare("GET", path, handle, show.__name__, summary=summary, query=query, **options)
            return show

        return declare

    def action(
        self,
        path: str,
        *,
        summary: str,
        rest: str | None,
        command: str | None,
        step_up: str | None = None,
        **options: Any,
    ) -> Callable[[Show], Show]:
        """Declare the decorated function as what a form does; `step_up` is the page to come back to after it."""
        needs_proof = step_up is not None
        self.twins.append(
            ConsoleAction(path=f"{ROOT}{path}", rest=rest, command=command, needs_proof=needs_proof)
        )

        def declare(act: Show) -> Show:
            def handle(call: RequestContext, **ids: Any) -> Response:
                csrf.check_origin(call.http, call.services.settings.base_url)
                form = read_form(call)
                csrf.check_token(call.http, cookies.find_session(call.http) or "", form.get(csrf.FIELD))
                context = PageContext(call=call, form=form)
                if step_up is not None:
                    context.require_step_up(step_up)
                return act(context, **ids)

            self._declare("POST", path, handle, act.__name__, summary=summary, **options)
            return act

        return declare

    def acts(self, path: str, act: Act, *, back: str, of_organization: bool = False, **declared: Any) -> None:
        """Declare an action that is one function of the domain, given the ids of the path; then `back` is shown.

        `back` may name those ids; `of_organization` gives the function the session's organization too.
        """

        def handle(context: PageContext, **ids: UUID) -> Response:
            scope = {"organization_id": context.organization_id} if of_organization else {}
            administer(context.call, act, **scope, **ids)
            return go_to(back.format(**ids))

        handle.__name__ = act.__name__
        self.action(path, **declared)(handle)

    def wrap(self, view: View) -> View:
        """Send a browser without a session to sign in, and keep pages out of caches."""

        def guarded(**path: Any) -> Response:
            try:
                response = view(**path)
            except (AuthenticationRequired, InvalidToken):
                response = go_to(SIGN_IN)
            except RedirectError as elsewhere:
                response = go_to(elsewhere.location)
            return forbid_caching(response)

        return guarded

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
            f"{ROOT}{path}",
            name=name,
            authentication=Authentication.SESSION,
            responses=responses or {200: HTML},
            hidden=True,
            serves_suspended=True,
            **options,
        )
        declare(handle)


def go_to(location: str) -> Response:
    """Send the browser to another page; a script is told by a header, as it would follow a redirect unseen."""
    if "HX-Request" in request.headers:
        return Response(status=401, headers={"HX-Redirect": location})
    response = redirect(location, code=303, Response=Response)
    assert isinstance(response, Response)  # noqa: S101 (as asked)
    return response
