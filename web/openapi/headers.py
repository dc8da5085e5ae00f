"""The headers of the OpenAPI document: those that every request may send, and those that answers bring."""

from collections.abc import Iterable, Mapping
from typing import Any

from web.error_responses.a2a_errors import is_a2a_path
from web.error_responses.anthropic_errors import REQUEST_ID_HEADER, is_anthropic_path
from web.error_responses.openai_errors import RETRY_HEADER, is_openai_path
from web.framework.authentication import ATTRIBUTION_HEADER, Authentication
from web.framework.routes import FilePart, RawBody, Route
from web.openapi.a2a_components import a2a_header_parameters

_WORTH_REPEATING = ("402", "408", "409", "429", "502", "503", "504", "507", "529")
_MADE = ("201", "202")
_ATTRIBUTION = {
    "name": ATTRIBUTION_HEADER,
    "in": "header",
    "required": False,
    "description": "The signed header of the routed request, forwarded unchanged; omitted for own work.",
    "schema": {"type": "string", "pattern": r"^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$"},
}
_PREFER = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "description": "`respond-async`, or `wait=N` for the longest wait in seconds (RFC 7240).",
    "schema": {"type": "string", "pattern": r"^(respond-async|wait=[0-9]{1,3})$"},
}
_OF_EVERY_REQUEST = {
    "X-Request-Id": "Names the request in answer and logs: 1 to 64 letters, digits, dots, dashes or underscores.",
    "traceparent": "The trace that the request belongs to (W3C Trace Context).",
}
_ANSWERED = {
    "X-Request-Id": "Names the request for its operators.",
    "RateLimit": "What is left of the credential's requests, where they are limited.",
    "RateLimit-Policy": "How many requests a credential has in which time, where they are limited.",
    "Location": "Where it is.",
    "Retry-After": "After how many seconds a repetition is worth it.",
    "WWW-Authenticate": "Which credentials are taken.",
    "Content-Range": "How long the content is.",
    RETRY_HEADER: "`false` where a client should not repeat the request.",
    REQUEST_ID_HEADER: "The same as `X-Request-Id`, as Anthropic's clients read it.",
    "A2A-Extensions": "The extensions that are active, where the request named some.",
}
PARAMETERS: Mapping[str, dict[str, Any]] = {
    name: {
        "name": name,
        "in": "header",
        "required": False,
        "description": text,
        "schema": {"type": "string"},
    }
    for name, text in _OF_EVERY_REQUEST.items()
}
HEADERS: Mapping[str, dict[str, Any]] = {
    name: {"description": text, "schema": {"type": "string"}} for name, text in _ANSWERED.items()
}


def header_parameters(route: Route) -> Iterable[dict[str, Any]]:
    """Describe the headers that a route reads."""
    if route.authentication.has_caller:
        yield _ATTRIBUTION
    if is_a2a_path(route.path) and route.authentication is Authentication.CALLER:
        yield from a2a_header_parameters(route.path)
    for name, description in route.headers.items():
        described = {"name": name, "in": "header", "required": False, "description": description}
        yield described | {"schema": {"type": "string"}}
    if isinstance(route.body, FilePart):
        yield _PREFER
    for name in _OF_EVERY_REQUEST:
        yield {"$ref": f"#/components/parameters/{name}"}


def answer_headers(route: Route, status: str) -> dict[str, Any]:
    """Describe the headers that an answer of a route brings."""
    is_error = status[0] in "45"
    # Of what is sent piece by piece, errors too say how much is kept.
    own = {} if is_error and not isinstance(route.body, RawBody) else route.response_headers
    described: dict[str, Any] = {
        name: {"description": text, "schema": {"type": "string"}} for name, text in own.items()
    }
    for name in _shared(route, status, is_error=is_error):
        described.setdefault(name, {"$ref": f"#/components/headers/{name}"})
    return described


def _shared(route: Route, status: str, *, is_error: bool) -> Iterable[str]:
    yield "X-Request-Id"
    if route.authentication is not Authentication.PUBLIC:
        yield from ("RateLimit", "RateLimit-Policy")
    if status in _MADE or isinstance(route.body, FilePart | RawBody):
        yield "Location"
    if status in _WORTH_REPEATING:
        yield "Retry-After"
    if status == "401":
        yield "WWW-Authenticate"
    if status == "416":
        yield "Content-Range"
    if is_error and is_openai_path(route.path):
        yield RETRY_HEADER
    if is_anthropic_path(route.path):
        yield REQUEST_ID_HEADER
    if is_a2a_path(route.path):
        yield "A2A-Extensions"
