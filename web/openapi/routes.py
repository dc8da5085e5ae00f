"""Serve the API documentation: the OpenAPI document, the pages that show it, and a page for each problem."""

import json
from collections.abc import Callable
from typing import Any, TypeVar, cast

from flask import Response, current_app
from werkzeug.exceptions import NotFound

from web.framework.authentication import Authentication
from web.framework.calls import RequestContext
from web.framework.rendering import page, version
from web.framework.routes import Route, Routes
from web.openapi import reference
from web.openapi.curl_commands import curl
from web.openapi.document import describe
from web.openapi.problems import by_status, list_problems, operations_by_code, samples

routes = Routes("documents")

_SHOWN_OPERATIONS = 24
_HTML = "text/html"
Value = TypeVar("Value")


@routes.route(
    "GET",
    "/openapi.json",
    summary="Get the OpenAPI 3.1 document of this service",
    authentication=Authentication.PUBLIC,
    responses={200: "application/json"},
)
def openapi(_: RequestContext) -> Response:
    text = _cached("openapi.json", lambda: json.dumps(_document()))
    return Response(text, content_type="application/json")


@routes.route(
    "GET",
    "/docs",
    summary="List every operation of this service in a page",
    authentication=Authentication.PUBLIC,
    responses={200: _HTML},
)
def docs(_: RequestContext) -> Response:
    return page("docs.html", tags=reference.operations_by_tag(_document()))


@routes.route(
    "GET",
    "/docs/<operation>",
    summary="Get a page that describes one operation",
    authentication=Authentication.PUBLIC,
    responses={200: _HTML},
)
def describe_operation(_: RequestContext, operation: str) -> Response:
    document = _document()
    found = reference.find_operation(document, operation)
    if found is None:
        raise NotFound("No operation has this name. All operations are at /docs.")
    body = found.get("requestBody", {}).get("content", {})
    return page(
        "operation.html",
        operation=found,
        command=curl(document, found),
        parameters=reference.parameters(document, found),
        body=reference.contents(document, body),
        responses=[
            (
                status,
                response,
                reference.contents(document, response.get("content", {})),
                reference.codes(response["description"]),
            )
            for status, response in found["responses"].items()
        ],
        security=[name for choice in found["security"] for name in choice],
    )


@routes.route(
    "GET",
    "/docs/schemas/<name>",
    summary="Get a page that describes one schema",
    authentication=Authentication.PUBLIC,
    responses={200: _HTML},
)
def describe_schema(_: RequestContext, name: str) -> Response:
    document = _document()
    schema = document["components"]["schemas"].get(name)
    if schema is None:
        raise NotFound("There is no such schema.")
    return page(
        "schema.html",
        name=name,
        schema=schema,
        kind=reference.kind(schema),
        references=reference.references(schema),
        fields=reference.members(document, schema),
        text=json.dumps(schema, indent=2, ensure_ascii=False),
    )


@routes.route(
    "GET",
    "/problems",
    summary="List every problem this service answers",
    authentication=Authentication.PUBLIC,
    responses={200: _HTML},
)
def list_all_problems(_: RequestContext) -> Response:
    return page("problems.html", statuses=by_status(list_problems().values()))


@routes.route(
    "GET",
    "/problems/<code>",
    summary="Get the description of one problem",
    authentication=Authentication.PUBLIC,
    responses={200: _HTML},
)
def describe_problem(_: RequestContext, code: str) -> Response:
    problems = list_problems()
    problem = problems.get(code.lower())
    if problem is None:
        raise NotFound("There is no such problem.")
    by_code = _cached("operations by code", lambda: operations_by_code(_routes()))
    operations = by_code.get(problem.code, [])
    return page(
        "problem.html",
        problem=problem,
        samples=samples(problem, operations, current_app.config["BASE_URL"]),
        operations=operations[:_SHOWN_OPERATIONS],
        more_operations=max(0, len(operations) - _SHOWN_OPERATIONS),
        near=[at.code for at in problems.values() if at.status == problem.status and at is not problem],
    )


def _routes() -> list[Route]:
    return cast("list[Route]", current_app.extensions["routes"])


def _document() -> dict[str, Any]:
    base_url = current_app.config["BASE_URL"]
    return _cached("openapi", lambda: describe(_routes(), base_url=base_url, version=version()))


def _cached(name: str, make: Callable[[], Value]) -> Value:
    """Return a value that depends only on code and settings.

    The value is computed at the first call and cached in the app.
    """
    kept = current_app.extensions
    if name not in kept:
        kept[name] = make()
    return cast("Value", kept[name])
