"""Let web pages of other origins talk to agents, where operators name these (`A2A_CORS_ORIGINS`).

Credentials travel in headers that a page sets itself, never in cookies: what a page may send, its owner has.
"""

from flask import Flask, Response, current_app, request

from web.dependencies.services import Services
from web.error_responses.a2a_errors import speaks_a2a

PREFLIGHT_SECONDS = 600
METHODS = "GET, POST, DELETE"
SENT_HEADERS = (
    "Authorization",
    "Content-Type",
    "A2A-Version",
    "A2A-Extensions",
    "X-A2A-Extensions",
    "Idempotency-Key",
    "Last-Event-ID",
    "Service-Usage-Attribution",
    "X-Request-Id",
    "traceparent",
)
READ_HEADERS = ("A2A-Extensions", "Retry-After", "RateLimit", "WWW-Authenticate", "X-Request-Id")


def share_with_origins(app: Flask) -> None:
    """Answer preflight requests to the protocol's addresses, and say on every answer who may read it."""

    def answer_preflight() -> Response | None:
        is_preflight = request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers
        if not is_preflight or _allowed_origin() is None:
            return None
        headers = {
            "Access-Control-Allow-Methods": METHODS,
            "Access-Control-Allow-Headers": ", ".join(SENT_HEADERS),
            "Access-Control-Max-Age": str(PREFLIGHT_SECONDS),
        }
        return Response(status=204, headers=headers)

    def allow(response: Response) -> Response:
        origin = _allowed_origin()
        if origin is not None:
            response.headers.setdefault("Access-Control-Allow-Origin", origin)
            response.headers["Access-Control-Expose-Headers"] = ", ".join(READ_HEADERS)
            if origin != "*":
                response.vary.add("Origin")
        return response

    app.before_request(answer_preflight)
    app.after_request(allow)


def _allowed_origin() -> str | None:
    """Give the origin that may read this answer."""
    services: Services = current_app.extensions["services"]
    allowed, origin = services.settings.a2a_cors_origins, request.headers.get("Origin")
    if origin is None or not speaks_a2a(request.path):
        return None
    if "*" in allowed:
        return "*"
    return origin if origin in allowed else None
