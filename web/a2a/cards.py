"""Serve agent cards. Cards are public, and the response headers let clients cache them."""

import hashlib
from datetime import UTC
from email.utils import format_datetime
from functools import partial
from uuid import UUID

from flask import Response, request

from shared.a2a.agents.cards import extend_card, make_card
from shared.a2a.errors import AgentNotFound, ExtendedAgentCardNotConfigured
from shared.a2a.exact_json import render
from shared.a2a.types import AgentCard
from shared.config.settings import Settings
from shared.errors import ServiceUnavailable
from web.a2a.protocol_routes import AGENT_PREFIX, AgentCall, AgentRoutes, respond
from web.dependencies.agent_directory import KnownAgent
from web.framework.authentication import Authentication
from web.framework.calls import RequestContext
from web.framework.routes import AnyQuery, Routes

# Caches keep a card this long, so a change of the card is visible everywhere within a minute.
MAXIMUM_AGE_SECONDS = 60
WELL_KNOWN = "/.well-known/agent-card.json"

_CONDITIONS = {"If-None-Match": "The `ETag` of the card that the client has cached."}
_CACHE_HEADERS = {
    "ETag": "Names this card.",
    "Last-Modified": "When something on the card was last added or changed. A removal does not change it.",
}

routes = Routes("agent-cards")
extended_routes = AgentRoutes("agents")


_card_route = partial(
    routes.route,
    "GET",
    authentication=Authentication.PUBLIC,
    query=AnyQuery,
    headers=_CONDITIONS,
    responses={200: AgentCard, 304: None},
    response_headers=_CACHE_HEADERS,
    errors=(AgentNotFound, ServiceUnavailable),
)


@_card_route(WELL_KNOWN, summary="Get the card of the default agent")
def read_agent_card(call: RequestContext) -> Response:
    return _card_response(call, None)


@_card_route(f"{AGENT_PREFIX}{WELL_KNOWN}", summary="Get the card of a deployment's agent")
def read_agent_card_of_agent(call: RequestContext, deployment_id: UUID) -> Response:
    return _card_response(call, deployment_id)


@extended_routes.agent_route(
    "GET",
    "/extendedAgentCard",
    summary="Get the extended card of an agent, for callers who may send messages to it",
    response=AgentCard,
    errors=(ExtendedAgentCardNotConfigured,),
)
def read_extended_agent_card(call: AgentCall) -> Response:
    known = call.services.directory.get(call.agent.deployment_id)
    path = request.path.removesuffix("/extendedAgentCard").rstrip("/")
    card = extend_card(_build_card(known, call.context.services.settings, path), call.agent)
    return respond(call, card)


def _card_response(call: RequestContext, deployment_id: UUID | None) -> Response:
    services = call.services
    known = services.agents.directory.get(deployment_id)
    path = "" if deployment_id is None else f"/agents/{deployment_id}"
    text = render(_build_card(known, services.settings, path).to_wire())
    response = Response(text, content_type="application/json")
    response.headers["Cache-Control"] = f"public, max-age={MAXIMUM_AGE_SECONDS}"
    # Cards are public, so allow web pages of any origin to read them.
    response.headers["Access-Control-Allow-Origin"] = "*"
    response.set_etag(hashlib.sha256(text.encode()).hexdigest()[:32])
    response.make_conditional(request)
    # Set `Last-Modified` after the conditional check, so that only the ETag decides: a removal does not
    # change this date.
    response.headers["Last-Modified"] = format_datetime(known.agent.changed_at.astimezone(UTC), usegmt=True)
    return response


def _build_card(known: KnownAgent, settings: Settings, path: str) -> AgentCard:
    return make_card(
        known.agent,
        known.declared,
        url=f"{settings.base_url}{path}",
        base_url=settings.base_url,
        pushes=settings.a2a_push_notifications,
    )
