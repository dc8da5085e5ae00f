"""Declare A2A's routes. Each route exists at the root for the default agent, and below `/agents/{deploymentId}`.

All routes check in this order: authentication (`web/framework/routes.py`), protocol version, agent,
permission of the caller. Requests are read leniently: unknown parameters and members are ignored, and the
body's media type may be JSON's, A2A's or absent. Responses are strict: they have no unknown members, no
nulls, and the media type that the client requested.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl
from uuid import UUID

from flask import Flask, Request, Response
from pydantic import BaseModel, ValidationError

from shared.a2a.agents.directory import Agent, Readable, Scope, authorize, authorize_reading, require_reading
from shared.a2a.errors import AgentNotFound, InvalidParams, TaskNotFound, VersionNotSupported
from shared.a2a.exact_json import NUMBERS, render
from shared.a2a.identifiers import find_task_id
from shared.a2a.updates import DeclaredExtension
from shared.a2a.wire import A2A
from shared.credits.errors import BillingOrganizationRequired
from shared.errors import DomainError, FieldError, PermissionDenied, ServiceUnavailable
from web.a2a.extensions import active_extensions, echo_extensions
from web.a2a.rpc_envelopes import RpcRequest, answer_rpc_errors
from web.dependencies.agent_services import AgentServices
from web.framework.authentication import Authentication
from web.framework.calls import RequestContext
from web.framework.revocation import Watch
from web.framework.routes import AnyQuery, Routes
from web.http.negotiation import JSON, negotiate
from web.http.requests import MalformedRequest, findings, parse_json

A2A_JSON = "application/a2a+json"
AGENT_PREFIX = "/agents/<id:deployment_id>"
VERSION_HEADER = "A2A-Version"
_SUPPORTED_VERSION = re.compile(r"1\.0(\.\d+)?")
REFUSALS: tuple[type[DomainError], ...] = (
    VersionNotSupported,
    AgentNotFound,
    BillingOrganizationRequired,
    PermissionDenied,
    InvalidParams,
    ServiceUnavailable,
)
Shape = TypeVar("Shape", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCall:
    """A request to an agent by a caller who may send messages to it."""

    context: RequestContext
    agent: Agent
    declared: tuple[DeclaredExtension, ...]
    active: tuple[str, ...]
    rpc: RpcRequest | None = None
    """The JSON-RPC request, or None in the HTTP+JSON binding."""

    @property
    def http(self) -> Request:
        """The HTTP request."""
        return self.context.http

    @property
    def scope(self) -> Scope:
        """The tasks of the caller. The caller's rights may have changed while the body arrived.

        Raises PermissionDenied.
        """
        return authorize(self.context.caller, self.agent)

    @property
    def watch(self) -> Watch:
        """A watch that checks, while the response is sent, whether the caller may still send messages to the agent."""
        return self.context.watch(lambda caller: authorize(caller, self._current_agent()))

    @property
    def readable(self) -> Readable:
        """The tasks that the caller may read, including tasks of other callers."""
        return authorize_reading(self.context.caller, self.agent)

    @property
    def watch_reading(self) -> Watch:
        """A watch that checks, while the response is sent, whether the caller may still read these tasks."""
        # Evaluate `readable` now: the check compares later rights with those at the start of the response.
        held = self.readable
        return self.context.watch(lambda caller: require_reading(caller, self._current_agent(), held))

    def _current_agent(self) -> Agent:
        """Return the current state of the agent. Raises AgentNotFound if the agent has been disabled."""
        return self.services.directory.get(self.agent.deployment_id).agent

    @property
    def services(self) -> AgentServices:
        """The services of A2A's routes."""
        return self.context.services.agents

    def read_body(self, shape: type[Shape]) -> Shape:
        """Return the JSON body. Accept any media type. Raises MalformedJson, InvalidParams, ContentTooLarge."""
        if self.rpc is not None:
            return _validate(shape, self.rpc.params, "body")
        raw = self.context.read_small_body(self.context.services.settings.max_message_bytes)
        return _validate(shape, parse_json(raw, **NUMBERS) if raw.strip() else {}, "body")

    def read_query(self, shape: type[Shape]) -> Shape:
        """Return the query parameters that the model declares. Raises InvalidParams."""
        query = parse_query(self.http) if self.rpc is None else self.rpc.as_query()
        return _validate(shape, query, "query")


AgentHandler = Callable[..., Response]


class AgentRoutes(Routes):
    """Routes of the A2A protocol."""

    def agent_route(
        self,
        method: str,
        path: str,
        *,
        response: type[A2A],
        is_stream: bool = False,
        query: type[AnyQuery] = AnyQuery,
        errors: tuple[type[DomainError], ...] = (),
        **options: Any,
    ) -> Callable[[AgentHandler], AgentHandler]:
        """Declare the decorated function as the handler of `method path`, for the default agent and for each agent.

        `response` is the model of the response or, with `is_stream`, of each event's data.
        """
        media_types = ("text/event-stream",) if is_stream else ("application/json", A2A_JSON)

        def declare(handler: AgentHandler) -> AgentHandler:
            # Two routes share one handler, but OpenAPI requires different operation ids, so add a suffix.
            for prefix, suffix in (("", ""), (AGENT_PREFIX, "_of_agent")):
                self.route(
                    method,
                    prefix + path,
                    name=f"{handler.__name__}{suffix}",
                    authentication=Authentication.CALLER,
                    query=query,
                    responses={200: dict.fromkeys(media_types, response)},
                    errors=(*REFUSALS, *errors),
                    **options,
                )(_guarded(handler))
            return handler

        return declare

    def register(self, app: Flask) -> None:
        """Add the routes to the application, and the hooks for extensions and JSON-RPC errors."""
        super().register(app)
        # Several groups of routes are registered, but the hooks must be registered once.
        if "a2a" not in app.extensions:
            app.extensions["a2a"] = True
            echo_extensions(app)
            answer_rpc_errors(app)


def respond(call: AgentCall | RequestContext, body: A2A | Mapping[str, Any]) -> Response:
    """Return a JSON object as the response, in the binding and the media type of the request."""
    wire = body.to_wire() if isinstance(body, A2A) else body
    if isinstance(call, AgentCall) and call.rpc is not None:
        return Response(call.rpc.wrap(render(wire)), content_type="application/json")
    return Response(render(wire), content_type=response_media_type(call.http))


def response_media_type(http: Request) -> str:
    """Return the media type of the response: JSON's or A2A's.

    `Accept` decides. Without it, the response has the media type of the request's body.
    """
    return negotiate(http, (A2A_JSON, JSON) if http.mimetype == A2A_JSON else (JSON, A2A_JSON))


def parse_query(http: Request) -> dict[str, str]:
    """Return the query parameters.

    Raises InvalidParams if a parameter is repeated, because the client may mean either value.
    """
    values: dict[str, str] = {}
    for name, value in parse_qsl(http.environ.get("QUERY_STRING", ""), keep_blank_values=True):
        if name in values:
            raise InvalidParams(errors=[FieldError(location="query", name=name, message="was sent twice")])
        values[name] = value
    return values


def require_task_id(value: str) -> UUID:
    """Parse a task's id from a path. Raises TaskNotFound if no task can have this id."""
    task_id = find_task_id(value)
    if task_id is None:
        raise TaskNotFound
    return task_id


def check_version(http: Request, *, is_required: bool) -> None:
    """Refuse an unsupported protocol version.

    If a version is required and the request has none, it counts as 0.3, which is unsupported.
    """
    # Read the query too: the protocol allows the version as a query parameter.
    asked = http.headers.get(VERSION_HEADER) or http.args.get(VERSION_HEADER) or ""
    if not (_SUPPORTED_VERSION.fullmatch(asked.strip()) if asked.strip() else not is_required):
        raise VersionNotSupported


def open_agent_call(
    call: RequestContext, deployment_id: UUID | None, *, rpc: RpcRequest | None = None
) -> AgentCall:
    """Authorize a request to an agent. Raises VersionNotSupported, AgentNotFound, PermissionDenied."""
    check_version(call.http, is_required=call.services.settings.a2a_require_version)
    caller = call.caller
    known = call.services.agents.directory.get(deployment_id)
    authorize(caller, known.agent)
    return AgentCall(
        context=call,
        agent=known.agent,
        declared=known.declared,
        active=active_extensions(deployment_id),
        rpc=rpc,
    )


def _guarded(handler: AgentHandler) -> Callable[..., Response]:
    def view(call: RequestContext, deployment_id: UUID | None = None, **path: Any) -> Response:
        return handler(open_agent_call(call, deployment_id), **path)

    return view


def _validate(shape: type[Shape], value: object, location: str) -> Shape:
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        found = findings(error)
        fields = [
            FieldError(location=location, name=".".join(map(str, at["loc"])) or location, message=at["msg"])
            for at in found
        ]
        raise InvalidParams(errors=fields) from None
    except RecursionError:
        raise MalformedRequest from None
