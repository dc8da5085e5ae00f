"""Declare routes: each states its method, path, authentication, shapes, answers and errors once.

The declaration validates the request and makes the OpenAPI document, so they cannot drift apart. The order of checks
is fixed here: route, authentication, a slot of who pays, rate limit, header rules, parameters, principals; then the
handler, which finds the file, asks for the permission, and only then looks at state and body.
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
from web.framework.admission import admit, admit_always, caller_key, give_slots_back
from web.framework.authentication import (
    Authentication,
    authenticate,
    check_header_rules,
    limit_rate,
    name_in_log,
)
from web.framework.calls import JsonResponse, RequestContext
from web.framework.current_callers import Requester
from web.http.requests import read_query, refuse_query
from web.http.slots import Admission
from web.http.wsgi_middleware import GRANTS

Handler = Callable[..., "JsonResponse | Response"]
PROBES = frozenset({"/healthz", "/readyz"})
"""Where load balancers ask how the service is; they wait for nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """The multipart body of an upload: one part named `file`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormBody:
    """An `application/x-www-form-urlencoded` body with these fields, read by the handler (OAuth)."""

    fields: Mapping[str, str]
    required: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonOrForm:
    """JSON of one of these shapes, or a form with these fields and the part `file`; read by the handler."""

    json: Sequence[type[BaseModel]]
    fields: type[BaseModel]


@dataclass(frozen=True, slots=True, kw_only=True)
class RawBody:
    """A body of one of these media types that the handler reads as it was sent, byte by byte: a webhook's."""

    media_types: Sequence[str]


Content = type[BaseModel] | str | Mapping[str, type[BaseModel] | None] | None
"""What an answer holds: JSON of a shape, a media type, shapes by media type, or nothing."""


class AnyQuery(BaseModel):
    """Any query at all, which the handler reads as it was sent: part of the address that a webhook was given.

    A subclass describes the parameters that its handler looks for, among whatever else was sent (A2A).
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method on one path."""

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
    """Headers of successes, and what they say."""
    query: type[BaseModel] | None = None
    body: type[BaseModel] | FilePart | FormBody | JsonOrForm | RawBody | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """Optional headers that the handler reads, and what they say."""
    errors: Sequence[type[DomainError]] = ()
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    hidden: bool = False
    serves_suspended: bool = False
    """Whether a user is served whose organization is suspended, if their key is not bound to it."""
    administers: bool = False
    """Whether only users are served: a deployment is refused before its body is read."""


class Routes:
    """The routes of one part of the service."""

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
        """Declare the decorated function as the handler of `method path`, by default under its own name.

        `summary` and `description` are for readers of the API, a docstring for readers of the code.
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
        """Mount the routes on the application."""
        give_slots_back(app)
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
        """Surround the answering of a request; a kind of routes of its own may add to it."""
        return view


def _view(route: Route) -> Callable[..., Response]:
    def view(**path: Any) -> Response:
        services: Services = current_app.extensions["services"]
        requester = Requester(
            services.revalidator, row_cache_seconds=services.settings.live_row_cache_seconds
        )
        requester.credential = credential = authenticate(route.authentication, request, services)
        name_in_log(credential)
        admission = _admit(route, services, credential)
        if credential is not None:
            limit_rate(str(credential.id), services)
        attribution = None
        if credential is not None or route.authentication is Authentication.GRANT_OR_CALLER:
            attribution = check_header_rules(request)
        query = _query(route)
        if credential is not None and route.authentication.has_caller:
            requester.caller = _resolve(route, services, credential, attribution)
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
            call.require_administrator()
        return _render(route.handler(call, **path))

    return view


def _admit(route: Route, services: Services, credential: Credential | None) -> Admission:
    """Take a slot for the request; probes never wait for one."""
    if route.path in PROBES:
        return admit_always(request.environ, services.pools)
    return admit(request.environ, services.pools, credential)


def _resolve(route: Route, services: Services, credential: Credential, attribution: str | None) -> Caller:
    """Give who calls with a credential and an attribution, if that was sent."""
    if route.serves_suspended and attribution is None:
        return caller_outside(credential)
    return services.authenticator.resolve(credential, attribution)


def _query(route: Route) -> BaseModel | None:
    query_string = request.environ.get("QUERY_STRING", "")
    if request.environ.get(GRANTS) and not route.authentication.takes_grants:
        # The edge has taken it out of the query, where it would have been refused.
        refuse_query("grant")
    if route.query is None:
        refuse_query(query_string)
        return None
    if issubclass(route.query, AnyQuery):
        return None
    return read_query(query_string, route.query)


def _json_shape(route: Route) -> type[BaseModel] | None:
    return route.body if isinstance(route.body, type) else None


def _render(answer: JsonResponse | Response) -> Response:
    if isinstance(answer, Response):
        return answer
    if answer.body is None:
        response = Response(status=answer.status)
        del response.headers["Content-Type"]
    else:
        json = answer.body.model_dump_json(by_alias=True)
        response = Response(json, answer.status, content_type="application/json")
    response.headers.update(answer.headers)
    return response
