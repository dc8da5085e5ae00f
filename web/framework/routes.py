"""Declare routes: each states its method, path, authentication, types, responses and errors once.

The declaration both validates requests and produces the OpenAPI document, so the two cannot differ. This
module fixes the order of checks: route, authentication, a slot of the organization that pays, rate limit,
header rules, parameters, principals. Then the handler finds the file and checks the permission, and only
after that the state and the body.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flask import Flask, Response, current_app, request
from pydantic import BaseModel

from shared.errors import DomainError
from shared.identity.access.callers import Caller
from shared.identity.authentication.credential_types import Credential, caller_outside
from web.dependencies.services import Services
from web.framework.admission import admit, admit_always, caller_key, release_slots_after_requests
from web.framework.authentication import (
    Authentication,
    authenticate,
    bind_credential_to_log,
    check_header_rules,
    limit_rate,
)
from web.framework.calls import JsonResponse, RequestContext
from web.framework.current_callers import Requester
from web.http.requests import read_query, refuse_query
from web.http.slots import Admission
from web.http.wsgi_middleware import GRANTS

Handler = Callable[..., "JsonResponse | Response"]
# The paths of health probes. A health probe never waits for a slot.
PROBES = frozenset({"/healthz", "/readyz"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """The multipart body of an upload: one part named `file`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormBody:
    """An `application/x-www-form-urlencoded` body with the given fields, which the handler reads (OAuth)."""

    fields: Mapping[str, str]
    required: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonOrForm:
    """A JSON body of one of the given types, or a form with the given fields and a part named `file`.

    The handler reads the body.
    """

    json: Sequence[type[BaseModel]]
    fields: type[BaseModel]


@dataclass(frozen=True, slots=True, kw_only=True)
class RawBody:
    """A body of one of the given media types. The handler reads its bytes, which a webhook's signature covers."""

    media_types: Sequence[str]


# Content of a response: a JSON type, a media type, JSON types by media type, or None for no content.
Content = type[BaseModel] | str | Mapping[str, type[BaseModel] | None] | None


class AnyQuery(BaseModel):
    """Any query parameters, which the handler reads itself: they belong to the URL that a webhook was registered with.

    A subclass describes the parameters that its handler uses, among any others (A2A).
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The declaration of one method on one path."""

    handler: Handler
    name: str
    method: str
    path: str
    summary: str
    description: str = ""
    tag: str
    authentication: Authentication
    responses: Mapping[int, Content]
    response_headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of successful responses, with their descriptions."""
    query: type[BaseModel] | None = None
    body: type[BaseModel] | FilePart | FormBody | JsonOrForm | RawBody | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """Optional headers that the handler reads, with their descriptions."""
    errors: Sequence[type[DomainError]] = ()
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    hidden: bool = False
    serves_suspended: bool = False
    """Whether the route serves users of a suspended organization. A key bound to the organization is refused."""
    administers: bool = False
    """Whether the route serves users only. A deployment is refused before its body is read."""


class Routes:
    """The routes that have the same tag in the API."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.declared: list[Route] = []

    def route(
        self,
        method: str,
        path: str,
        *,
        summary: str,
        name: str | None = None,
        **options: Any,
    ) -> Callable[[Handler], Handler]:
        """Declare the decorated function as the handler of `method path`.

        `name` is by default the function's name. `summary` and `description` are for readers of the API, and
        the docstring is for readers of the code.
        """

        def declare(handler: Handler) -> Handler:
            route = Route(
                handler=handler,
                name=name or handler.__name__,
                method=method,
                path=path,
                summary=summary,
                tag=self.tag,
                **options,
            )
            self.declared.append(route)
            return handler

        return declare

    def register(self, app: Flask) -> None:
        """Add the routes to the application."""
        release_slots_after_requests(app)
        for route in self.declared:
            app.add_url_rule(
                route.path,
                endpoint=f"{self.tag}.{route.name}",
                view_func=self.wrap(_view(route)),
                methods=[route.method],
                provide_automatic_options=False,
            )
            app.extensions.setdefault("routes", []).append(route)

    def wrap(self, view: Callable[..., Response]) -> Callable[..., Response]:
        """Wrap the view of a request. A subclass may add behavior around it."""
        return view


def _view(route: Route) -> Callable[..., Response]:
    def view(**path: Any) -> Response:
        services: Services = current_app.extensions["services"]
        requester = Requester(
            services.revalidator, row_cache_seconds=services.settings.live_row_cache_seconds
        )
        # Authenticate first: an unauthenticated client must not learn whether a parameter is valid.
        requester.credential = credential = authenticate(route.authentication, request, services)
        bind_credential_to_log(credential)
        # Take the slot before counting: a request that finds no slot must not use up its credential's rate
        # limit.
        admission = _admit(route, services, credential)
        if credential is not None:
            limit_rate(str(credential.id), services)
        attribution = None
        if credential is not None or route.authentication is Authentication.GRANT_OR_CALLER:
            # Without a credential, check only the header's format: a read grant carries no principals.
            attribution = check_header_rules(request)
        query = _query(route)
        if credential is not None and route.authentication.has_caller:
            requester.caller = _resolve(route, services, credential, attribution)
            # The attribution decides which organization pays, so from here on the slot counts for that
            # organization.
            admission.move(caller_key(requester.caller))
        call = RequestContext(
            http=request,
            services=services,
            admission=admission,
            body_shape=_json_shape(route),
            _requester=requester,
            _query=query,
        )
        if route.administers:
            # Check before the handler reads the body: the server must not receive a body from a refused
            # deployment.
            call.require_administrator()
        return _render(route.handler(call, **path))

    return view


def _admit(route: Route, services: Services, credential: Credential | None) -> Admission:
    """Acquire a slot for the request. A health probe never waits for a slot."""
    if route.path in PROBES:
        return admit_always(request.environ, services.pools)
    return admit(request.environ, services.pools, credential)


def _resolve(route: Route, services: Services, credential: Credential, attribution: str | None) -> Caller:
    """Return the caller of a credential, acting for the attribution's user if the client sent an attribution."""
    if route.serves_suspended and attribution is None:
        return caller_outside(credential)
    return services.authenticator.resolve(credential, attribution)


def _query(route: Route) -> BaseModel | None:
    query_string = request.environ.get("QUERY_STRING", "")
    if request.environ.get(GRANTS) and not route.authentication.takes_grants:
        # The middleware has removed `grant` from the query, so refuse it by name like any unknown parameter.
        refuse_query("grant")
    if route.query is None:
        refuse_query(query_string)
        return None
    # With AnyQuery, the handler parses the query itself.
    if issubclass(route.query, AnyQuery):
        return None
    return read_query(query_string, route.query)


def _json_shape(route: Route) -> type[BaseModel] | None:
    return route.body if isinstance(route.body, type) else None


def _render(result: JsonResponse | Response) -> Response:
    if isinstance(result, Response):
        return result
    if result.body is None:
        response = Response(status=result.status)
        # Flask sets a content type by default. Remove it, because this response has no content.
        del response.headers["Content-Type"]
    else:
        json = result.body.model_dump_json(by_alias=True)
        response = Response(json, result.status, content_type="application/json")
    response.headers.update(result.headers)
    return response
