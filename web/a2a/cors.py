"""Allow web pages of other origins to use agents, if operators list these origins (`A2A_CORS_ORIGINS`).

A page's script sends credentials in headers, never in cookies. So a page can only use a credential that its
user has entered there.
"""

from flask import Flask, Response, current_app, request

from web.dependencies.services import Services
from web.error_responses.a2a_errors import is_a2a_path

# Browsers cache a preflight response this long. Longer times delay a changed setting, and shorter times cause
# more preflight requests.
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


def add_cors_headers(app: Flask) -> None:
    """Answer preflight requests to A2A's paths, and add the CORS headers to every response."""

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
                # Without `Vary`, a cache could return one origin's response to another origin.
                response.vary.add("Origin")
        return response

    app.before_request(answer_preflight)
    app.after_request(allow)


def _allowed_origin() -> str | None:
    """Return the origin that may read this response, `*` for any origin, or None for no origin."""
    services: Services = current_app.extensions["services"]
    allowed, origin = services.settings.a2a_cors_origins, request.headers.get("Origin")
    if origin is None or not is_a2a_path(request.path):
        return None
    if "*" in allowed:
        return "*"
    return origin if origin in allowed else None
