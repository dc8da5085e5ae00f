"""Turn errors into answers: the one place where a kind becomes a status.

File and identity routes answer RFC 9457 problems; a blueprint may register another dialect (`/v1` speaks OpenAI's,
A2A its own) under its path prefix. Whatever was not foreseen is logged with its traceback and answered 500 without it.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

from flask import Flask, Response, current_app, request
from werkzeug.exceptions import HTTPException

from shared.errors import DomainError, Kind
from shared.telemetry import get_logger
from web.calls import request_id
from web.edge import BODY_READ

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
    Kind.UNAVAILABLE: 503,
    Kind.STORAGE_FULL: 507,
}
_HTTP_CODES = {
    404: "not_found",
    405: "method_not_allowed",
    400: "malformed_request",
    413: "content_too_large",
}
_INTERNAL = ("internal_error", "The service failed; the operators can find this request by its id.")


def register_error_handlers(app: Flask) -> None:
    """Answer every exception of this application as a problem."""
    app.register_error_handler(DomainError, answer_domain_error)
    app.register_error_handler(HTTPException, _answer_http_exception)
    app.register_error_handler(Exception, _answer_unforeseen)


def answer_domain_error(error: DomainError) -> Response:
    """Render a domain error as a problem with its status and headers."""
    status = STATUSES[error.kind]
    response = problem(
        status,
        error.code,
        error.detail,
        errors=[{"location": at.location, "name": at.name, "message": at.message} for at in error.errors],
        **error.data,
    )
    if error.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(error.retry_after_seconds)
    if error.kind is Kind.RANGE_NOT_SATISFIABLE:
        response.headers["Content-Range"] = f"bytes */{error.data['byteSize']}"
    if error.kind is Kind.UNAUTHENTICATED:
        response.headers["WWW-Authenticate"] = _challenge(error.code)
    return response


def problem(
    status: int, code: str, detail: str, *, errors: list[dict[str, str]] | None = None, **data: Any
) -> Response:
    """Make an `application/problem+json` answer (RFC 9457)."""
    body: dict[str, Any] = {
        "type": f"{current_app.config['BASE_URL']}/problems/{code}",
        "title": title(code),
        "status": status,
        "detail": detail,
        "code": code,
        "requestId": request_id(),
        **data,
    }
    if errors:
        body["errors"] = errors
    response = Response(json.dumps(body, default=str), status, content_type="application/problem+json")
    if _body_is_unread():
        # What is left of the body would be read as the next request; close instead of draining gigabytes.
        response.headers["Connection"] = "close"
    return response


def title(code: str) -> str:
    """Give the human name of a code."""
    return code.replace("_", " ").capitalize()


def problems() -> Iterator[tuple[str, int, str]]:
    """List every problem this service can answer: code, status and meaning."""
    seen: set[str] = set()
    for error in _subclasses(DomainError):
        code = error.__dict__.get("code")
        if code and code not in seen:
            seen.add(code)
            yield code, STATUSES[error.kind], inspect.cleandoc(error.__doc__ or "").replace("\n", " ")
    yield "not_found", 404, "Nothing is at this address."
    yield "method_not_allowed", 405, "This address does not take that method; `Allow` lists those it takes."
    yield _INTERNAL[0], 500, _INTERNAL[1]


def _answer_http_exception(error: HTTPException) -> Response:
    status = error.code or 500
    response = problem(status, _HTTP_CODES.get(status, "malformed_request"), error.description or "")
    for name, value in error.get_headers():
        if name in ("Allow", "Retry-After"):
            response.headers[name] = value
    return response


def _answer_unforeseen(_: Exception) -> Response:
    log.exception("request.failed", method=request.method, route=str(request.url_rule or ""))  # noqa: LOG004 (Flask handles one)
    return problem(500, *_INTERNAL)


def _challenge(code: str) -> str:
    if code == "authentication_required":
        return 'Bearer realm="quartermaster"'
    return 'Bearer realm="quartermaster", error="invalid_token"'


def _body_is_unread() -> bool:
    if request.headers.get("Transfer-Encoding"):
        return True
    return bool(request.content_length) and not request.environ.get(BODY_READ, False)


def _subclasses(error: type[DomainError]) -> Iterator[type[DomainError]]:
    for subclass in error.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)
