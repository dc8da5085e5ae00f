"""Render an error in the format of its path: a problem (RFC 9457), OAuth's, OpenAI's, Anthropic's, A2A's or a page.

The functions need no Flask request, because the server also renders its own early refusals with them.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from web.error_responses.a2a_errors import PROTOCOL_DOMAIN, error_body, is_a2a_path
from web.error_responses.anthropic_errors import (
    REQUEST_ID_HEADER,
    anthropic_body,
    anthropic_status,
    is_anthropic_path,
)
from web.error_responses.html_errors import CONTENT_TYPE, error_headers, error_page, is_console_path
from web.error_responses.openai_errors import RETRY_HEADER, is_final_status, is_openai_path, openai_body

PROBLEM = "application/problem+json"
OAUTH_PATHS = ("/oauth/token", "/oauth/revoke", "/oauth/introspect")
OAUTH_CODES = frozenset(
    {
        "invalid_request",
        "invalid_client",
        "unauthorized_client",
        "unsupported_grant_type",
        "invalid_scope",
        "invalid_target",
    }
)
_OAUTH_CODES_BY_STATUS = {
    429: "temporarily_unavailable",
    500: "server_error",
    503: "temporarily_unavailable",
}
# RFC 6749 5.2 allows only these characters in `error_description`.
_NOT_DESCRIBABLE = re.compile(r"[^\x20\x21\x23-\x5b\x5d-\x7e]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorResponse:
    """The status, body and headers of an error."""

    status: int
    body: Mapping[str, Any]
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    page: str | None = None

    @property
    def content(self) -> str:
        """The HTML page, or the body as JSON text."""
        return self.page if self.page is not None else json.dumps(self.body, default=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialects:
    """Renders errors in each format. The errors contain URLs of this service."""

    base_url: str

    def write(
        self, path: str, status: int, code: str, detail: str, *, request_id: str, **data: Any
    ) -> ErrorResponse:
        """Render an error in the format of the path.

        `data` contains additional members. Its member `errors` lists the invalid fields.
        """
        if path in OAUTH_PATHS:
            return _oauth_error(status, code, detail)
        if is_a2a_path(path):
            host = urlsplit(self.base_url).hostname or PROTOCOL_DOMAIN
            body = error_body(status, code, detail, request=request_id, host=host, **data)
            return ErrorResponse(status=body["error"]["code"], body=body)
        # Check before OpenAI's format, because `/v1/messages` is below `/v1`.
        if is_anthropic_path(path):
            return _anthropic_error(status, code, detail, request_id, data)
        if is_openai_path(path):
            headers = {RETRY_HEADER: "false"} if is_final_status(status) else {}
            return ErrorResponse(
                status=status, body=openai_body(status, code, detail, **data), headers=headers
            )
        if is_console_path(path):
            return _error_page(status, code, detail, request_id, data)
        return self.problem(status, code, detail, request_id=request_id, **data)

    def problem(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        request_id: str,
        errors: list[dict[str, str]] | None = None,
        **data: Any,
    ) -> ErrorResponse:
        """Render an error as a problem, on any path."""
        body: dict[str, Any] = {
            "type": f"{self.base_url}/problems/{code}",
            "title": title(code),
            "status": status,
            "detail": detail,
            "code": code,
            "requestId": request_id,
            **data,
        }
        if errors:
            body["errors"] = errors
        return ErrorResponse(status=status, body=body, media_type=PROBLEM)

    def refuse(self, target: str, status: int, code: str, detail: str) -> bytes:
        """Return the complete response to a request that the server refuses before the application sees it."""
        request_id = uuid4().hex
        answer = self.write(_path(target), status, code, detail, request_id=request_id)
        content = answer.content.encode()
        headers = {
            "Content-Type": answer.media_type,
            "Content-Length": str(len(content)),
            "Connection": "close",
            "X-Request-Id": request_id,
            "X-Content-Type-Options": "nosniff",
            **answer.headers,
        }
        if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
            # The server is overloaded only briefly. Without this header, clients would wait longer or not
            # retry at all.
            headers["Retry-After"] = "1"
        lines = (
            f"HTTP/1.1 {answer.status} {reason_phrase(answer.status)}",
            *map(": ".join, headers.items()),
        )
        return "\r\n".join((*lines, "", "")).encode() + content


def oauth_code(status: int, code: str) -> str:
    """Return OAuth's code for an error. If OAuth has no such code, return the nearest one."""
    if code in OAUTH_CODES:
        return code
    return _OAUTH_CODES_BY_STATUS.get(status, "invalid_request")


def title(code: str) -> str:
    """Return the title of an error, made from its code."""
    return code.replace("_", " ").capitalize()


def _oauth_error(status: int, code: str, detail: str) -> ErrorResponse:
    """Render the error of a token endpoint (RFC 6749 5.2)."""
    body = {"error": oauth_code(status, code), "error_description": _NOT_DESCRIBABLE.sub("'", detail)}
    return ErrorResponse(
        status=status, body=body, headers={"Cache-Control": "no-store", "Pragma": "no-cache"}
    )


def _anthropic_error(
    status: int, code: str, detail: str, request_id: str, data: Mapping[str, Any]
) -> ErrorResponse:
    status = anthropic_status(status, code)
    headers = {REQUEST_ID_HEADER: request_id}
    if is_final_status(status):
        headers[RETRY_HEADER] = "false"
    body = anthropic_body(status, code, detail, request_id=request_id, **data)
    return ErrorResponse(status=status, body=body, headers=headers)


def _error_page(
    status: int, code: str, detail: str, request_id: str, data: Mapping[str, Any]
) -> ErrorResponse:
    errors = data.get("errors") or ()
    page = error_page(status, code, title(code), detail, request_id=request_id, errors=errors)
    return ErrorResponse(status=status, body={}, media_type=CONTENT_TYPE, headers=error_headers(), page=page)


def reason_phrase(status: int) -> str:
    """Return the reason phrase of a status. A status that HTTP does not define gets one too."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Overloaded"


def _path(target: str) -> str:
    """Return the path of a request target. The target may include scheme and host."""
    try:
        return urlsplit(target).path
    except ValueError:
        return ""
