"""Create the ASGI application of an agent, which serves the agent's card, HTTP+JSON and JSON-RPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar

from a2a.auth.user import User
from a2a.server.context import ServerCallContext
from a2a.server.routes import (
    ServerCallContextBuilder,
    create_agent_card_routes,
    create_jsonrpc_routes,
    create_rest_routes,
)
from a2a.types import AgentCard
from a2a.utils.errors import VersionNotSupportedError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from quartermaster.agents.authentication import ServiceAuthentication
from quartermaster.agents.cards import PROTOCOL_VERSION, with_address
from quartermaster.agents.connection import Connection
from quartermaster.agents.executor import SkillExecutor
from quartermaster.agents.extensions import Extension
from quartermaster.agents.negotiation import ACTIVE_KEY, Negotiation
from quartermaster.agents.recent_tasks import RecentTasks
from quartermaster.agents.requests import Requests
from quartermaster.agents.skills import Skill

PAUSED_TASK_SECONDS = 600.0
"""Seconds for which a task that requires input keeps its runner in memory. A later reply starts a new runner."""
UNKNOWN_ADDRESS = "http://localhost"
VERSION_HEADER = "a2a-version"
_requested_base: ContextVar[str] = ContextVar("quartermaster_requested_base")


def make_application(
    card: AgentCard,
    *,
    skills: Mapping[str, Skill],
    extensions: Sequence[Extension],
    connection: Connection,
    url: str | None,
    is_anonymous: bool,
    threads: int,
) -> Starlette:
    """Return the application of an agent. Without `url`, the card contains the address of the card's request."""
    placed = with_address(card, url or UNKNOWN_ADDRESS)
    handler = Requests(
        skills=skills,
        declared=extensions,
        needs_context=not is_anonymous,
        agent_executor=SkillExecutor(skills, connection, threads=threads),
        task_store=RecentTasks(),
        agent_card=placed,
        interrupted_task_timeout=PAUSED_TASK_SECONDS,
    )

    async def address(card: AgentCard) -> AgentCard:
        return with_address(card, url or _requested_base.get())

    contexts = _CallContexts()
    return Starlette(
        routes=[
            *create_agent_card_routes(placed, address),
            *create_jsonrpc_routes(handler, rpc_url="/", context_builder=contexts),
            *create_rest_routes(handler, context_builder=contexts),
        ],
        middleware=[
            Middleware(_RequestedBase),
            # Place this middleware outside of the authentication: an error response must list the active extensions.
            Middleware(Negotiation, declared=extensions),
            Middleware(ServiceAuthentication, connection=connection, is_anonymous=is_anonymous),
        ],
        lifespan=_closing(handler, connection),
    )


def _closing(
    handler: Requests, connection: Connection
) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    """Return the lifespan that cancels running tasks and closes the connections when the server stops."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await handler.aclose()
        await connection.aclose()

    return lifespan


class _Service(User):
    """The user of every request: the service, which is an agent's only client. The attribution is in the context."""

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def user_name(self) -> str:
        return "service"


class _CallContexts(ServerCallContextBuilder):
    def build(self, request: Request) -> ServerCallContext:
        """Return the call context of a request. Raises VersionNotSupportedError unless the A2A version is supported."""
        # a2a-sdk treats a missing version as 0.3, so add this agent's version to the headers below.
        version = request.headers.get(VERSION_HEADER, "").strip() or PROTOCOL_VERSION
        if version != PROTOCOL_VERSION:
            raise VersionNotSupportedError(f"The agent supports A2A {PROTOCOL_VERSION}, not {version[:20]}.")
        return ServerCallContext(
            user=_Service(),
            state={"headers": {**request.headers, VERSION_HEADER: version}},
            requested_extensions=set(request.scope[ACTIVE_KEY]),
        )


class _RequestedBase:
    """Middleware that records the base URL of a request, so that the card can contain that URL."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            _requested_base.set(str(Request(scope).base_url))
        await self._app(scope, receive, send)
