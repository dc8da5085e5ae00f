"""Declare the protocol's routes: each at the root, for the default agent, and below `/agents/{deploymentId}`.

All check in this order: authentication (`web/framework/routes.py`), version, agent, whether this caller may talk to it.
Liberal in: unknown query parameters and members are ignored, either name of a media type is taken, a body may lack its
type. Strict out: nothing unknown, no nulls, the media type that was asked for.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl
from uuid import UUID

from flask import Flask, Request, Response
from pydantic import BaseModel, ValidationError

from shared.a2a.agent_turns.updates import DeclaredExtension
from shared.a2a.agents.directory import Agent, Readable, Scope, authorize, authorize_reading, require_reading
from shared.a2a.errors import AgentNotFound, InvalidParams, TaskNotFound, VersionNotSupported
from shared.a2a.exact_json import NUMBERS, render
from shared.a2a.identifiers import find_task_id
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
_SPOKEN = re.compile(r"1\.0(\.\d+)?")
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
    """A request to an agent by someone who may talk to it."""

    checked: RequestContext
    agent: Agent
    declared: tuple[DeclaredExtension, ...]
    active: tuple[str, ...]
    rpc: RpcRequest | None = None
    """The request's JSON-RPC, if it came by that binding."""

    @property
    def http(self) -> Request:
        """The request."""
        return self.checked.http

    @property
    def scope(self) -> Scope:
        """Whose tasks are meant, by the caller as they are now. Raises PermissionDenied."""
        return authorize(self.checked.caller, self.agent)

    @property
    def watch(self) -> Watch:
        """What watches, while the request is being answered, whether its caller may still talk to the agent."""
        return self.checked.watch(lambda caller: authorize(caller, self._current_agent()))

    @property
    def readable(self) -> Readable:
        """Which tasks the caller may read, others' among them."""
        return authorize_reading(self.checked.caller, self.agent)

    @property
    def watch_reading(self) -> Watch:
        """What watches, while a request is being answered, whether its caller may still read what they could."""
        held = self.readable
        return self.checked.watch(lambda caller: require_reading(caller, self._current_agent(), held))

    def _current_agent(self) -> Agent:
        """Give the agent as it is while the request is being answered. Raises AgentNotFound once it is disabled."""
        return self.services.directory.get(self.agent.deployment_id).agent

    @property
    def services(self) -> AgentServices:
        """What A2A's routes use."""
        return self.checked.services.agents

    def read_body(self, shape: type[Shape]) -> Shape:
        """Read the JSON body, whatever it says it is. Raises MalformedJson, InvalidParams, ContentTooLarge."""
        if self.rpc is not None:
            return _validated(shape, self.rpc.params, "body")
        raw = self.checked.read_small_body(self.checked.services.settings.max_message_bytes)
        return _validated(shape, parse_json(raw, **NUMBERS) if raw.strip() else {}, "body")

    def read_query(self, shape: type[Shape]) -> Shape:
        """Read the query parameters that the shape knows. Raises InvalidParams."""
        query = query_of(self.http) if self.rpc is None else self.rpc.as_query()
        return _validated(shape, query, "query")


AgentHandler = Callable[..., Response]


class AgentRoutes(Routes):
    """Routes of the protocol."""

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
        """Declare the decorated function as the handler of `method path` for the default agent and for each.

        `response` is the shape of the whole answer or, with `is_stream`, of each event's data.
        """
        media_types = ("text/event-stream",) if is_stream else ("application/json", A2A_JSON)

        def declare(handler: AgentHandler) -> AgentHandler:
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
        """Mount the routes, and the echo of extensions around all of them."""
        super().register(app)
        if "a2a" not in app.extensions:
            app.extensions["a2a"] = True
            echo_extensions(app)
            answer_rpc_errors(app)


def answer(call: AgentCall | RequestContext, body: A2A | Mapping[str, Any]) -> Response:
    """Answer with a JSON object, as the request's binding has it, under the media type that it speaks of."""
    wire = body.to_wire() if isinstance(body, A2A) else body
    if isinstance(call, AgentCall) and call.rpc is not None:
        return Response(call.rpc.wrap(render(wire)), content_type="application/json")
    return Response(render(wire), content_type=spoken_type(call.http))


def spoken_type(http: Request) -> str:
    """Choose between JSON and the protocol's own media type: as accepted, else as the request's body has it."""
    return negotiate(http, (A2A_JSON, JSON) if http.mimetype == A2A_JSON else (JSON, A2A_JSON))


def query_of(http: Request) -> dict[str, str]:
    """Read a query; of a parameter that is repeated, which of them is meant cannot be known. Raises InvalidParams."""
    values: dict[str, str] = {}
    for name, value in parse_qsl(http.environ.get("QUERY_STRING", ""), keep_blank_values=True):
        if name in values:
            raise InvalidParams(errors=[FieldError(location="query", name=name, message="was sent twice")])
        values[name] = value
    return values


def require_task_id(value: str) -> UUID:
    """Read a task's id from a path. Raises TaskNotFound for what no task is called."""
    task_id = find_task_id(value)
    if task_id is None:
        raise TaskNotFound
    return task_id


def check_version(http: Request, *, is_required: bool) -> None:
    """Refuse versions of the protocol that are not spoken here; absent and empty mean 0.3 where that is required."""
    asked = http.headers.get(VERSION_HEADER) or http.args.get(VERSION_HEADER) or ""
    if not (_SPOKEN.fullmatch(asked.strip()) if asked.strip() else not is_required):
        raise VersionNotSupported


def open_agent_call(
    call: RequestContext, deployment_id: UUID | None, *, rpc: RpcRequest | None = None
) -> AgentCall:
    """Check a request to an agent. Raises VersionNotSupported, AgentNotFound, PermissionDenied."""
    check_version(call.http, is_required=call.services.settings.a2a_require_version)
    caller = call.caller
    known = call.services.agents.directory.get(deployment_id)
    authorize(caller, known.agent)
    return AgentCall(
        checked=call,
        agent=known.agent,
        declared=known.declared,
        active=active_extensions(deployment_id),
        rpc=rpc,
    )


def _guarded(handler: AgentHandler) -> Callable[..., Response]:
    def view(call: RequestContext, deployment_id: UUID | None = None, **path: Any) -> Response:
        return handler(open_agent_call(call, deployment_id), **path)

    return view


def _validated(shape: type[Shape], value: object, location: str) -> Shape:
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
