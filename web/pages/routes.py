"""Serve the first page, which names what is at this address, and what all pages load."""

from collections.abc import Mapping
from dataclasses import dataclass

from flask import Response
from werkzeug.exceptions import NotFound

from web.framework.authentication import Authentication
from web.framework.calls import RequestContext
from web.framework.rendering import ASSETS, HTML, asset, fingerprint, media_type, page, version
from web.framework.routes import AnyQuery, Routes
from web.http.negotiation import JSON, negotiate
from web.http.wire_types import CamelModel

routes = Routes("pages")

_KEPT = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Something at this address; what is open can be read without credentials."""

    name: str
    path: str
    what: str
    is_open: bool = True


PLACES = (
    Place(
        name="guide",
        path="/docs/guide/",
        what="First steps, guides by task, operations, commands and settings",
    ),
    Place(name="reference", path="/docs", what="Every operation, with what it takes and answers"),
    Place(name="openapi", path="/openapi.json", what="The same as an OpenAPI 3.1 document"),
    Place(name="problems", path="/problems", what="Every error, with its remedy"),
    Place(name="extensions", path="/extensions", what="The A2A extensions of this service"),
    Place(name="agentCard", path="/.well-known/agent-card.json", what="The card of the default agent"),
    Place(
        name="authorizationServer",
        path="/.well-known/oauth-authorization-server",
        what="Where deployments exchange their secret for a token",
    ),
    Place(name="keys", path="/.well-known/jwks.json", what="The keys that tokens are signed with"),
    Place(name="models", path="/v1/models", what="Language models, with a key", is_open=False),
    Place(name="files", path="/files", what="Files, with a key or token", is_open=False),
    Place(name="agents", path="/agents", what="Agents and their tasks, with a key or token", is_open=False),
    Place(name="administration", path="/admin/me", what="Administration, with a key", is_open=False),
    Place(name="health", path="/healthz", what="Whether the process answers"),
    Place(name="readiness", path="/readyz", what="Whether the service can do its work"),
)


class ServiceDirectory(CamelModel):
    """What is at this address."""

    name: str
    version: str
    links: Mapping[str, str]


@routes.route(
    "GET",
    "/",
    summary="List what is at this address, as a page or as JSON",
    authentication=Authentication.PUBLIC,
    query=AnyQuery,
    responses={200: {HTML: None, JSON: ServiceDirectory}},
)
def home(call: RequestContext) -> Response:
    if negotiate(call.http, (JSON, HTML)) == HTML:
        response = page("home.html", places=PLACES)
    else:
        base_url = call.services.settings.base_url
        links = {place.name: f"{base_url}{place.path}" for place in PLACES}
        body = ServiceDirectory(name="Quartermaster", version=version(), links=links)
        response = Response(body.model_dump_json(by_alias=True), content_type=JSON)
    response.vary.add("Accept")
    return response


@routes.route(
    "GET",
    "/static/<state>/<name>",
    summary="Get what pages load: the stylesheet, and the console's scripts",
    authentication=Authentication.PUBLIC,
    responses={200: {"text/css": None, "text/javascript": None}},
    hidden=True,
)
def static_asset(_: RequestContext, state: str, name: str) -> Response:
    if name not in ASSETS or state != fingerprint(name):
        raise NotFound("Nothing is at this address.")
    return Response(asset(name), content_type=media_type(name), headers={"Cache-Control": _KEPT})
