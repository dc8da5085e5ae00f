"""Serve the specification of each A2A extension of this service at the extension's URI.

A specification contains the JSON Schemas of the extension's data.
"""

from flask import Response
from werkzeug.exceptions import NotFound

from shared.a2a.agents.own_extensions import (
    OwnExtension,
    find_own_extension,
    list_specifications,
    schema_of,
    specification_of,
)
from shared.a2a.exact_json import render
from web.framework.authentication import Authentication
from web.framework.calls import RequestContext
from web.framework.routes import AnyQuery, Routes

routes = Routes("extensions")

_HEADERS = {
    "Cache-Control": "public, max-age=3600",
    # Allow only the style in the page itself: a specification has no script and loads nothing.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
}


@routes.route(
    "GET",
    "/extensions",
    summary="List the service's A2A extensions",
    authentication=Authentication.PUBLIC,
    query=AnyQuery,
    responses={200: "text/html"},
)
def list_extensions(call: RequestContext) -> Response:
    text = list_specifications(call.services.settings.base_url)
    return Response(text, content_type="text/html; charset=utf-8", headers=_HEADERS)


@routes.route(
    "GET",
    "/extensions/<name>/<version>",
    summary="Get the specification of one of the service's A2A extensions",
    authentication=Authentication.PUBLIC,
    query=AnyQuery,
    responses={200: "text/html"},
)
def read_extension(call: RequestContext, name: str, version: str) -> Response:
    own = _find(name, version)
    text = specification_of(own, call.services.settings.base_url)
    return Response(text, content_type="text/html; charset=utf-8", headers=_HEADERS)


@routes.route(
    "GET",
    "/extensions/<name>/<version>/schema.json",
    summary="Get the JSON Schemas of the data and parameters of one of the service's A2A extensions",
    authentication=Authentication.PUBLIC,
    query=AnyQuery,
    responses={200: "application/schema+json"},
)
def read_extension_schema(call: RequestContext, name: str, version: str) -> Response:
    own = _find(name, version)
    uri = f"{call.services.settings.base_url}/extensions/{name}/{version}"
    return Response(render(schema_of(own, uri)), content_type="application/schema+json", headers=_HEADERS)


def _find(name: str, version: str) -> OwnExtension:
    own = find_own_extension(name, version)
    if own is None:
        raise NotFound("There is no such extension. Get the list at /extensions.")
    return own
