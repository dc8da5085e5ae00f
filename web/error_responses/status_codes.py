"""Turn errors into responses. This is the only module that maps an error's kind to a status.

Each error has the format of its path (`error_formats.py`). The traceback of an unexpected error is logged,
and the response is 500 without the traceback.
"""

from typing import Any

from flask import Flask, Response, current_app, request
from werkzeug.exceptions import HTTPException

from shared.errors import DomainError, Kind
from shared.observability.telemetry import get_logger
from web.error_responses.error_formats import Dialects, ErrorResponse
from web.error_responses.openai_errors import RETRY_HEADER
from web.framework.calls import request_id
from web.http.wsgi_middleware import BODY_READ

log = get_logger(__name__)

STATUSES = {
    Kind.MALFORMED: 400,
    Kind.UNAUTHENTICATED: 401,
    Kind.UNPAID: 402,
    Kind.DENIED: 403,
    Kind.NOT_FOUND: 404,
    Kind.TOO_SLOW: 408,
    Kind.CONFLICT: 409,
    Kind.GONE: 410,
    Kind.PRECONDITION_FAILED: 412,
    Kind.TOO_LARGE: 413,
    Kind.UNSUPPORTED_MEDIA_TYPE: 415,
    Kind.RANGE_NOT_SATISFIABLE: 416,
    Kind.INVALID: 422,
    Kind.PRECONDITION_REQUIRED: 428,
    Kind.LIMITED: 429,
    Kind.UPSTREAM_FAILED: 502,
    Kind.UNAVAILABLE: 503,
    Kind.UPSTREAM_TIMED_OUT: 504,
    Kind.STORAGE_FULL: 507,
}
MAXIMUM_ERRORS = 20
NAME_CHARACTERS = 200
MESSAGE_CHARACTERS = 500
_HTTP_CODES = {
    404: "not_found",
    405: "method_not_allowed",
    400: "malformed_request",
    413: "content_too_large",
}
_FIRST_OF_OURS = 500
INTERNAL_ERROR = "The service failed. Report this request's id to the operators, who can find it in the logs."
_INTERNAL = ("internal_error", INTERNAL_ERROR)


def register_error_handlers(app: Flask) -> None:
    """Register a handler for every exception of the application."""
    app.register_error_handler(DomainError, answer_domain_error)
    app.register_error_handler(HTTPException, _respond_with_http_error)
    app.register_error_handler(Exception, _respond_with_internal_error)


def answer_domain_error(error: DomainError) -> Response:
    """Return the response of a domain error, with its status and headers."""
    response = _fail(STATUSES[error.kind], error.code, error.detail, **_described(error), **error.data)
    if error.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(error.retry_after_seconds)
    if error.kind is Kind.RANGE_NOT_SATISFIABLE:
        response.headers["Content-Range"] = f"bytes */{error.data['byteSize']}"
    if error.kind is Kind.UNAUTHENTICATED:
        response.headers["WWW-Authenticate"] = _challenge(error.code)
    if error.is_final:
        response.headers[RETRY_HEADER] = "false"
    return response


def _described(error: DomainError) -> dict[str, Any]:
    """Return the first invalid fields, each shortened, and how many are not listed."""
    errors = [
        {
            "location": at.location,
            "name": _clip(at.name, NAME_CHARACTERS),
            "message": _clip(at.message, MESSAGE_CHARACTERS),
        }
        for at in error.errors[:MAXIMUM_ERRORS]
    ]
    left_out = len(error.errors) - len(errors)
    return {"errors": errors} | ({"moreErrors": left_out} if left_out else {})


def _clip(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


def problem(status: int, code: str, detail: str) -> Response:
    """Return a response in `application/problem+json` (RFC 9457), on any path."""
    return _respond(_dialects().problem(status, code, detail, request_id=request_id()))


def _respond_with_http_error(error: HTTPException) -> Response:
    status = error.code or 500
    # Details of this service's own failures belong in the log only.
    if status >= _FIRST_OF_OURS:
        return _fail(status, *_INTERNAL)
    response = _fail(status, _HTTP_CODES.get(status, "malformed_request"), error.description or "")
    for name, value in error.get_headers():
        # Keep only these headers: the others describe werkzeug's own HTML page.
        if name in ("Allow", "Retry-After"):
            response.headers[name] = value
    return response


def _respond_with_internal_error(_: Exception) -> Response:
    log.exception("request.failed", method=request.method, route=str(request.url_rule or ""))  # noqa: LOG004 (Flask handles one)
    return _fail(500, *_INTERNAL)


def _fail(status: int, code: str, detail: str, **data: Any) -> Response:
    return _respond(_dialects().write(request.path, status, code, detail, request_id=request_id(), **data))


def _dialects() -> Dialects:
    dialects: Dialects = current_app.extensions["error_dialects"]
    return dialects


def _respond(answer: ErrorResponse) -> Response:
    response = Response(answer.content, answer.status, answer.headers, content_type=answer.media_type)
    if _body_is_unread():
        # Close the connection: the rest of the body would be read as the next request. Closing costs less
        # than draining gigabytes.
        response.headers["Connection"] = "close"
    return response


def _challenge(code: str) -> str:
    if code == "invalid_client":
        return 'Basic realm="quartermaster", charset="UTF-8"'
    if code == "signature_invalid":
        return 'Signature realm="quartermaster"'
    if code == "authentication_required":
        return 'Bearer realm="quartermaster"'
    return 'Bearer realm="quartermaster", error="invalid_token"'


def _body_is_unread() -> bool:
    if request.headers.get("Transfer-Encoding"):
        return True
    return bool(request.content_length) and not request.environ.get(BODY_READ, False)
