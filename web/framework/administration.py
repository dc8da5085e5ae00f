"""Declare administrative routes: user keys only, JSON, pages, and 201 with a Location.

A deployment is refused before its body is read. Each handler reads `call.actor` after the body, so that a
revocation during the body counts. It opens its transaction last, so that no database connection waits for a
client. Routes that create a resource take no idempotency key. Where a repeated request would do harm
(members, users, bindings), the resource is unique and a repeated request gets 409.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from shared.errors import DomainError, PermissionDenied, ServiceUnavailable, ValidationFailed
from shared.identity.errors import ResourceNotFound
from web.framework.authentication import Authentication
from web.framework.calls import JsonResponse, RequestContext
from web.framework.routes import Content, Handler, Routes
from web.http.schemas import PageQuery, PageResponse, ResponseModel

Declaration = Callable[[Handler], Handler]
# A domain function. Its arguments are a session, `actor`, and the path's ids by name.
Act = Callable[..., Any]
Errors = tuple[type[DomainError], ...]

ORGANIZATION = "/organizations/<id:organization_id>"
NO_STORE = {"Cache-Control": "no-store"}
_REFUSED: Errors = (PermissionDenied, ResourceNotFound, ServiceUnavailable)


class AdministrationRoutes(Routes):
    """Administrative routes. A route that only passes on ids is declared by the domain function alone."""

    def resource(self, path: str, response_model: type[ResponseModel]) -> Resource:
        """Return a builder for the routes of one resource. All these routes respond with the same type."""
        return Resource(self, path, response_model)

    def lists(self, path: str, act: Act, page: type[PageResponse], **texts: str) -> None:
        """Declare a GET that returns a page of resources. The route is named after the domain function."""

        def handle(call: RequestContext, **ids: UUID) -> JsonResponse:
            return JsonResponse(body=page.of(administer(call, act, **ids, **call.query.position)))

        self.pages(path, page, PageQuery, **{"name": act.__name__, **texts})(handle)

    def pages(
        self, path: str, page: type[BaseModel], query: type[BaseModel] = PageQuery, **texts: str
    ) -> Declaration:
        """Return a decorator for a GET that takes a query and returns a page."""
        return self.administers("GET", path, {200: page}, ValidationFailed, query=query, **texts)

    def creates(
        self,
        path: str,
        request_model: type[BaseModel],
        response_model: type[BaseModel],
        *errors: type[DomainError],
        **texts: str,
    ) -> Declaration:
        """Return a decorator for a POST that creates a resource."""
        return self.administers("POST", path, {201: response_model}, *errors, body=request_model, **texts)

    def changes(
        self,
        method: str,
        path: str,
        request_model: type[BaseModel],
        response_model: type[BaseModel],
        *errors: type[DomainError],
        **options: Any,
    ) -> Declaration:
        """Return a decorator for a PUT or PATCH."""
        return self.administers(method, path, {200: response_model}, *errors, body=request_model, **options)

    def administers(
        self,
        method: str,
        path: str,
        responses: Mapping[int, Content],
        *errors: type[DomainError],
        **options: Any,
    ) -> Declaration:
        """Return a decorator for an administrative route of another kind."""
        return self.route(
            method,
            f"/admin{path}",
            authentication=Authentication.CALLER,
            administers=True,
            responses=responses,
            errors=(*_REFUSED, *errors),
            **options,
        )


class Resource:
    """Builder of the routes of one resource. Their handlers are domain functions that take the ids in the path."""

    def __init__(self, routes: AdministrationRoutes, path: str, response_model: type[ResponseModel]) -> None:
        self._routes, self._path, self._response_model = routes, path, response_model

    def reads(self, name: str, act: Act, **texts: str) -> None:
        """Declare a GET of the resource."""
        self._routes.administers("GET", self._path, {200: self._response_model}, name=name, **texts)(
            self._shows(act)
        )

    def acts(self, verb: str, act: Act, *errors: type[DomainError], **texts: str) -> None:
        """Declare a POST without a body. The route is named after the domain function."""
        path, responses = f"{self._path}/{verb}", {200: self._response_model}
        declare = self._routes.administers("POST", path, responses, *errors, name=act.__name__, **texts)
        declare(self._shows(act))

    def removes(self, act: Act, *errors: type[DomainError], **texts: str) -> None:
        """Declare a DELETE. The route is named after the domain function."""

        def handle(call: RequestContext, **ids: UUID) -> JsonResponse:
            administer(call, act, **ids)
            return JsonResponse(status=204)

        self._routes.administers("DELETE", self._path, {204: None}, *errors, name=act.__name__, **texts)(
            handle
        )

    def _shows(self, act: Act) -> Handler:
        return lambda call, **ids: JsonResponse(body=self._response_model.of(administer(call, act, **ids)))


def administer(call: RequestContext, act: Act, **arguments: Any) -> Any:
    """Call a domain function as the caller, in a transaction. Return the function's result."""
    actor = call.actor
    # Open the transaction last, so that no database connection is held while the body arrives.
    with call.services.database.transaction() as session:
        return act(session, actor=actor, **arguments)


def created(call: RequestContext, body: BaseModel, path: str) -> JsonResponse:
    """Return 201 with the new resource and its URL. The body may contain a secret that is shown only once."""
    location = f"{call.services.settings.base_url}/admin{path}"
    return JsonResponse(body=body, status=201, headers={"Location": location, **NO_STORE})
