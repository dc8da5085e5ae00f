"""Serve the home page, which links to the pages of the service, and the assets of all pages."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from flask import Response
from werkzeug.exceptions import NotFound

from web.framework.authentication import Authentication
from web.framework.calls import RequestContext
from web.framework.rendering import ASSETS, HTML, asset, fingerprint, media_type, page, version
from web.framework.routes import AnyQuery, Routes
from web.http.negotiation import JSON, negotiate
from web.http.wire_types import CamelModel

routes = Routes("pages")

# The path contains the fingerprint of the content, so the content at a path never changes.
_KEPT = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A part of the service. Its path is a link if a browser without credentials gets a page there."""

    name: str
    path: str
    what: str
    is_linked: bool = True


GUIDE = Place(
    name="guide", path="/docs/guide/", what="First steps, guides by task, operations, commands and settings"
)
PLACES = (
    Place(
        name="console",
        path="/console",
        what="The console: usage, keys, files, agents and people, in a browser",
    ),
    Place(name="reference", path="/docs", what="The API: every operation with its parameters and responses"),
    Place(name="openapi", path="/openapi.json", what="The API as an OpenAPI 3.1 document"),
    Place(name="problems", path="/problems", what="Every error with its meaning and remedy"),
    Place(name="extensions", path="/extensions", what="The A2A extensions of this service"),
    Place(
        name="agentCard",
        path="/.well-known/agent-card.json",
        what="The card of the default agent, once there is one",
        is_linked=False,
    ),
    Place(
        name="authorizationServer",
        path="/.well-known/oauth-authorization-server",
        what="OAuth metadata: where deployments exchange their secret for a token",
    ),
    Place(name="keys", path="/.well-known/jwks.json", what="The public keys that verify access tokens"),
    Place(name="models", path="/v1/models", what="Language models, with a key", is_linked=False),
    Place(name="files", path="/files", what="Files, with a key or token", is_linked=False),
    Place(name="agents", path="/agents", what="Agents and their tasks, with a key or token", is_linked=False),
    Place(name="administration", path="/admin/me", what="Administration, with a key", is_linked=False),
    Place(name="health", path="/healthz", what="Liveness of this process"),
    Place(name="readiness", path="/readyz", what="Readiness of the service"),
)


class ServiceDirectory(CamelModel):
    """The parts of the service at this address."""

    name: str
    version: str
    links: Mapping[str, str]


@routes.route(
    "GET",
    "/",
    summary="List the parts of the service, as a page or as JSON",
    authentication=Authentication.PUBLIC,
    query=AnyQuery,
    responses={200: {HTML: None, JSON: ServiceDirectory}},
)
def home(call: RequestContext) -> Response:
    if negotiate(call.http, (JSON, HTML)) == HTML:
        response = page("home.html", places=_places())
    else:
        base_url = call.services.settings.base_url
        links = {place.name: f"{base_url}{place.path}" for place in _places()}
        body = ServiceDirectory(name="Quartermaster", version=version(), links=links)
        response = Response(body.model_dump_json(by_alias=True), content_type=JSON)
    # Both forms of the response vary, so that a cache does not return the page to a client that wants JSON.
    response.vary.add("Accept")
    return response


def is_guide_built() -> bool:
    """Return whether the installation contains the guide.

    A checkout contains no guide before `make guide`.
    """
    # Check the file instead of importing a module of web/guide: the packages of web do not import each other.
    return (resources.files("web.guide") / "site" / "index.html").is_file()


def _places() -> tuple[Place, ...]:
    return (GUIDE, *PLACES) if is_guide_built() else PLACES


@routes.route(
    "GET",
    "/static/<state>/<name>",
    summary="Get an asset of the pages: the stylesheet or a script of the console",
    authentication=Authentication.PUBLIC,
    responses={200: {"text/css": None, "text/javascript": None}},
    hidden=True,
)
def static_asset(_: RequestContext, state: str, name: str) -> Response:
    # Respond 404 to the fingerprint of another release: a cache would keep the current content under it for a
    # year.
    if name not in ASSETS or state != fingerprint(name):
        raise NotFound("No asset has this name and fingerprint.")
    return Response(asset(name), content_type=media_type(name), headers={"Cache-Control": _KEPT})
