"""Serve what the service says of itself: its OpenAPI document, a viewer, and a page for every problem."""

import html
import json
from functools import cache
from importlib import metadata, resources

from flask import Response, current_app

from web.authentication import Authentication
from web.calls import Call
from web.error_dialects import title
from web.errors import problem, problems
from web.openapi.description import describe
from web.routes import Routes

routes = Routes("documents")

_ASSETS = {
    "viewer.js": ("swagger_bundle.js", "text/javascript"),
    "viewer.css": ("swagger_style.css", "text/css"),
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'"
)
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Quartermaster: API</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="/docs/viewer.css"></head>
<body><div id="viewer"></div><script src="/docs/viewer.js"></script><script src="/docs/start.js"></script></body></html>
"""
_START = (
    "SwaggerUIBundle({url: '/openapi.json', dom_id: '#viewer', deepLinking: true, tryItOutEnabled: true});\n"
)


@routes.route(
    "GET",
    "/openapi.json",
    summary="Get the OpenAPI 3.1 document of this service",
    authentication=Authentication.PUBLIC,
    answers={200: "application/json"},
)
def openapi(_: Call) -> Response:
    return Response(_document(), content_type="application/json")


@routes.route(
    "GET",
    "/docs",
    summary="Get a page that shows the OpenAPI document",
    authentication=Authentication.PUBLIC,
    answers={200: "text/html"},
)
def docs(_: Call) -> Response:
    return _page(_PAGE)


@routes.route(
    "GET",
    "/docs/<asset>",
    summary="Get a part of the viewer",
    authentication=Authentication.PUBLIC,
    answers={200: "text/javascript"},
    hidden=True,
)
def docs_asset(_: Call, asset: str) -> Response:
    if asset == "start.js":
        return Response(_START, content_type="text/javascript; charset=utf-8")
    if asset not in _ASSETS:
        return problem(404, "not_found", "Nothing is at this address.")
    name, media_type = _ASSETS[asset]
    response = Response(_asset(name), content_type=f"{media_type}; charset=utf-8")
    response.headers["Cache-Control"] = "public, max-age=86400"
    return response


@routes.route(
    "GET",
    "/problems",
    summary="List every problem this service answers",
    authentication=Authentication.PUBLIC,
    answers={200: "text/html"},
)
def list_problems(_: Call) -> Response:
    rows = "".join(
        f'<tr><td><a href="/problems/{code}">{code}</a></td><td>{status}</td><td>{html.escape(meaning)}</td></tr>'
        for code, status, meaning in sorted(problems())
    )
    return _page(_shell("Problems", f"<table>{rows}</table>"))


@routes.route(
    "GET",
    "/problems/<code>",
    summary="Get the description of one problem",
    authentication=Authentication.PUBLIC,
    answers={200: "text/html"},
)
def describe_problem(_: Call, code: str) -> Response:
    for known, status, meaning in problems():
        if known == code:
            return _page(_shell(title(code), f"<p>Status {status}.</p><p>{html.escape(meaning)}</p>"))
    return problem(404, "not_found", "There is no such problem.")


def _document() -> str:
    if "openapi" not in current_app.extensions:
        document = describe(
            current_app.extensions["routes"],
            base_url=current_app.config["BASE_URL"],
            version=metadata.version("quartermaster"),
        )
        current_app.extensions["openapi"] = json.dumps(document)
    rendered: str = current_app.extensions["openapi"]
    return rendered


def _page(body: str) -> Response:
    response = Response(body, content_type="text/html; charset=utf-8")
    response.headers["Content-Security-Policy"] = _POLICY
    return response


def _shell(name: str, content: str) -> str:
    heading = html.escape(name)
    return f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{heading}</title><h1>{heading}</h1>{content}'


@cache
def _asset(name: str) -> bytes:
    return (resources.files("offapi") / name).read_bytes()
