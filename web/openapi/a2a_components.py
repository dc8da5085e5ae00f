"""Components of the OpenAPI document for A2A routes: their error schema and headers."""

from collections.abc import Iterable, Mapping
from typing import Any

from web.error_responses.a2a_errors import PROTOCOL_DOMAIN, a2a_reason

A2A_ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": f"What went wrong: google.rpc.Status; `domain` is {PROTOCOL_DOMAIN} or this service's host.",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "integer"},
                "status": {"type": "string"},
                "message": {"type": "string"},
                "details": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            # One object has the members of all detail types. Only `@type` is required,
                            # because each type has different members.
                            "@type": {"type": "string"},
                            "reason": {"type": "string"},
                            "domain": {"type": "string"},
                            "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
                            "fieldViolations": {
                                "type": "array",
                                "items": {
                                    "type": "object",
                                    "properties": {
                                        name: {"type": "string"} for name in ("field", "description")
                                    },
                                },
                            },
                        },
                        "required": ["@type"],
                    },
                },
            },
            "required": ["code", "status", "message", "details"],
        }
    },
    "required": ["error"],
}

_HEADERS: Mapping[str, tuple[str, str | None]] = {
    "A2A-Version": ("The version of the protocol: `1.0`.", r"^(1\.0(\.[0-9]+)?)?$"),
    "A2A-Extensions": ("URIs of extensions to activate, comma-separated; unknown ones are ignored.", None),
    "X-A2A-Extensions": ("The name of `A2A-Extensions` in earlier versions of the protocol.", None),
}
_IDEMPOTENCY = (
    "The key of this message: a retry with the same key returns the first result.",
    r"^[!-~]{1,255}$",
)


def a2a_header_parameters(path: str) -> Iterable[dict[str, Any]]:
    """Yield the header parameters of an A2A route."""
    headers = dict(_HEADERS)
    if path.endswith(("/message:send", "/message:stream")):
        headers["Idempotency-Key"] = _IDEMPOTENCY
    if path.endswith(":subscribe"):
        headers["Last-Event-ID"] = ("The id of the last received event; the stream continues after it.", None)
    for name, (description, pattern) in headers.items():
        yield {
            "name": name,
            "in": "header",
            "required": False,
            "description": description,
            "schema": {"type": "string"} if pattern is None else {"type": "string", "pattern": pattern},
        }


def a2a_error_answer(codes: Mapping[str, str], reference: Mapping[str, Any]) -> dict[str, Any]:
    """Return the error response of a status."""
    reasons: dict[str, str] = {}
    for code, meaning in codes.items():
        # Several codes may have the same reason of the protocol. Show the meaning of the first code.
        reasons.setdefault(a2a_reason(code), meaning)
    listed = "\n".join(f"- `{reason}`: {meaning}" for reason, meaning in reasons.items())
    return {"description": listed, "content": {"application/json": {"schema": dict(reference)}}}
