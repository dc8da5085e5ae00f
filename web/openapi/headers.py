"""The headers in the OpenAPI document: request headers and response headers."""

from collections.abc import Iterable, Mapping
from typing import Any

from web.error_responses.a2a_errors import is_a2a_path
from web.error_responses.anthropic_errors import REQUEST_ID_HEADER, is_anthropic_path
from web.error_responses.openai_errors import RETRY_HEADER, is_openai_path
from web.framework.authentication import ATTRIBUTION_HEADER, Authentication
from web.framework.routes import FilePart, RawBody, Route
from web.openapi.a2a_components import a2a_header_parameters

_RETRYABLE = ("402", "408", "409", "429", "502", "503", "504", "507", "529")
_CREATED = ("201", "202")
_ATTRIBUTION = {
    "name": ATTRIBUTION_HEADER,
    "in": "header",
    "required": False,
    "description": "The signed header of the routed request, forwarded unchanged; omitted for its own work.",
    "schema": {"type": "string", "pattern": r"^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$"},
}
_PREFER = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "description": "`respond-async`, or `wait=N` for the longest wait in seconds (RFC 7240).",
    "schema": {"type": "string", "pattern": r"^(respond-async|wait=[0-9]{1,3})$"},
}
_REQUEST_HEADERS = {
    "X-Request-Id": "The id of the request in response and logs: 1 to 64 letters, digits, dots, dashes or underscores.",
    "traceparent": "The trace of the request (W3C Trace Context).",
}
_RESPONSE_HEADERS = {
    "X-Request-Id": "The id of the request, for reports to the operators.",
    "RateLimit": "The requests that the credential has left, if it is limited.",
    "RateLimit-Policy": "The limit of requests and its window in seconds, if the credential is limited.",
    "Location": "The address of the resource.",
    "Retry-After": "Seconds to wait before a retry.",
    "WWW-Authenticate": "The accepted credentials.",
    "Content-Range": "The length of the content.",
    RETRY_HEADER: "`false` if a client should not retry the request.",
    REQUEST_ID_HEADER: "The same as `X-Request-Id`, for Anthropic's clients.",
    "A2A-Extensions": "The active extensions, if the request named any.",
}
PARAMETERS: Mapping[str, dict[str, Any]] = {
    name: {
        "name": name,
        "in": "header",
        "required": False,
        "description": text,
        "schema": {"type": "string"},
    }
    for name, text in _REQUEST_HEADERS.items()
}
HEADERS: Mapping[str, dict[str, Any]] = {
    name: {"description": text, "schema": {"type": "string"}} for name, text in _RESPONSE_HEADERS.items()
}


def header_parameters(route: Route) -> Iterable[dict[str, Any]]:
    """Yield the header parameters of a route."""
    if route.authentication.has_caller:
        yield _ATTRIBUTION
    if is_a2a_path(route.path) and route.authentication is Authentication.CALLER:
        yield from a2a_header_parameters(route.path)
    for name, description in route.headers.items():
        described = {"name": name, "in": "header", "required": False, "description": description}
        yield described | {"schema": {"type": "string"}}
    if isinstance(route.body, FilePart):
        yield _PREFER
    for name in _REQUEST_HEADERS:
        yield {"$ref": f"#/components/parameters/{name}"}


def response_headers(route: Route, status: str) -> dict[str, Any]:
    """Return the headers of a route's response."""
    is_error = status[0] in "45"
    # An error of a resumable upload keeps the headers of the route, because it reports the stored offset too.
    own = {} if is_error and not isinstance(route.body, RawBody) else route.response_headers
    described: dict[str, Any] = {
        name: {"description": text, "schema": {"type": "string"}} for name, text in own.items()
    }
    for name in _shared(route, status, is_error=is_error):
        described.setdefault(name, {"$ref": f"#/components/headers/{name}"})
    return described


def _shared(route: Route, status: str, *, is_error: bool) -> Iterable[str]:
    yield "X-Request-Id"
    # Add rate limit headers only to routes with a credential, because only a credential has a rate limit.
    if route.authentication is not Authentication.PUBLIC:
        yield from ("RateLimit", "RateLimit-Policy")
    if status in _CREATED or isinstance(route.body, FilePart | RawBody):
        yield "Location"
    if status in _RETRYABLE:
        yield "Retry-After"
    if status == "401":
        yield "WWW-Authenticate"
    if status == "416":
        yield "Content-Range"
    # OpenAI's clients read this header to decide whether to retry.
    if is_error and is_openai_path(route.path):
        yield RETRY_HEADER
    if is_anthropic_path(route.path):
        yield REQUEST_ID_HEADER
    if is_a2a_path(route.path):
        yield "A2A-Extensions"
