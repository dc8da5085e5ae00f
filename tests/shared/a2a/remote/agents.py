"""Servers that endpoints point at: the published SDK's own, in a thread, and raw ones that answer what a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response

from tests.support.data.media_sources import Handler, MediaSource, Respond, begin
from tests.support.processes.stack import free_port, wait_until

CARD = "/.well-known/agent-card.json"
TRANSLATION = "https://extensions.example/translation/v1"
BINDINGS = ("HTTP+JSON", "JSONRPC")


class Silent(AgentExecutor):
    """Is never asked anything."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


class Locked(BaseHTTPMiddleware):
    """Lets in who has the key; cards are for everybody."""

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        if request.url.path.endswith(CARD) or request.headers.get("X-API-Key") == "right":
            return await call_next(request)
        return Response(status_code=401)


@contextmanager
def sdk_agent(*bindings: str, is_locked: bool = False) -> Iterator[str]:
    """Run the published SDK's server, with these bindings in this order; give its address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    handler = DefaultRequestHandler(
        agent_executor=Silent(), task_store=InMemoryTaskStore(), agent_card=sdk_card(url, bindings)
    )
    app = Starlette(
        routes=[
            *create_agent_card_routes(sdk_card(url, bindings)),
            *create_jsonrpc_routes(handler, rpc_url="/rpc"),
            *create_rest_routes(handler),
        ],
        middleware=[Middleware(Locked)] if is_locked else [],
    )
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=port, ws="none", log_config=None, lifespan="off")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started, "the agent's server to listen")
        yield url
    finally:
        server.should_exit = True
        thread.join(60)


def sdk_card(url: str, bindings: tuple[str, ...] = BINDINGS) -> AgentCard:
    addresses = {"HTTP+JSON": url, "JSONRPC": f"{url}/rpc"}
    return AgentCard(
        name="Reporter",
        description="Reports on photos.",
        version="2.5",
        supported_interfaces=[
            AgentInterface(url=addresses[binding], protocol_binding=binding, protocol_version="1.0")
            for binding in bindings
        ],
        capabilities=AgentCapabilities(
            streaming=True, extensions=[AgentExtension(uri=TRANSLATION, description="Other languages.")]
        ),
        default_input_modes=["text/plain", "image/*"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="report", name="Report", description="Describes.", tags=["photo"])],
    )


class RawAgent(MediaSource):
    """Answers each path as a test says, whatever its query is."""

    def answer(self, handler: Handler) -> None:
        handler.path = handler.path.partition("?")[0]
        super().answer(handler)

    def card(self, **changes: Any) -> dict[str, Any]:
        """A card that can be used, and what a test changes in it."""
        interface = {"url": self.url, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}
        return {
            "name": "Raw",
            "description": "Answers raw.",
            "version": "1",
            "supportedInterfaces": [interface],
            "capabilities": {},
            "defaultInputModes": ["text"],
            "defaultOutputModes": ["text"],
            "skills": [{"id": "raw", "name": "Raw", "description": "Raw.", "tags": ["raw"]}],
            **changes,
        }


def answers(body: object, status: int = 200, **headers: str) -> Respond:
    """Answer with JSON, or with bytes as they are."""
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()

    def respond(handler: Handler) -> None:
        begin(handler, status, {"Content-Length": str(len(sent)), **headers})
        handler.wfile.write(sent)

    return respond
