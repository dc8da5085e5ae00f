"""JSON-RPC 2.0 envelopes around A2A's objects: requests, results and errors.

Errors that the protocol defines have status 200, a JSON-RPC code, and the details of the HTTP+JSON binding.
Other errors (an invalid credential, a limit, a body that is too large) keep their HTTP status, as in the
HTTP+JSON binding.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flask import Flask, Response, g

from shared.a2a.errors import InvalidParams
from shared.a2a.exact_json import NUMBERS, render
from shared.errors import DomainError, FieldError, Kind
from web.http.requests import MalformedJson, MalformedRequest, parse_json

VERSION = "2.0"
# The JSON-RPC codes of errors (protocol definition 5.4 and 9.5), by reason.
CODES: Mapping[str, int] = {
    "TASK_NOT_FOUND": -32001,
    "TASK_NOT_CANCELABLE": -32002,
    "PUSH_NOTIFICATION_NOT_SUPPORTED": -32003,
    "UNSUPPORTED_OPERATION": -32004,
    "CONTENT_TYPE_NOT_SUPPORTED": -32005,
    "INVALID_AGENT_RESPONSE": -32006,
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED": -32007,
    "EXTENSION_SUPPORT_REQUIRED": -32008,
    "VERSION_NOT_SUPPORTED": -32009,
    "PARSE_ERROR": -32700,
    "INVALID_REQUEST": -32600,
    "METHOD_NOT_FOUND": -32601,
    "INVALID_PARAMS": -32602,
    "INTERNAL_ERROR": -32603,
}
_FIRST_ERROR = 400


class ParseError(DomainError):
    """The body of the JSON-RPC request is not JSON."""

    code = "parse_error"
    kind = Kind.MALFORMED


class MethodNotFound(DomainError):
    """There is no such JSON-RPC method; their names are those of A2A 1.0, such as `SendMessage`."""

    code = "method_not_found"
    kind = Kind.NOT_FOUND


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcRequest:
    """A JSON-RPC request."""

    id: Any
    method: str
    params: Mapping[str, Any]

    def wrap(self, result: str) -> str:
        """Return the JSON-RPC response with a result. `result` is JSON text."""
        return f'{{"jsonrpc":"{VERSION}","id":{render(self.id)},"result":{result}}}'

    def wrap_error(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the JSON-RPC response with an error that occurred within a stream.

        `body` is the error of HTTP+JSON.
        """
        return _error(self.id, body["error"])

    def require_text(self, name: str, other: str) -> str:
        """Return a required text parameter, sent under `name` or `other`. Raises InvalidParams."""
        value = self.params.get(name, self.params.get(other))
        if not isinstance(value, str):
            raise InvalidParams(errors=[FieldError(location="body", name=name, message="must be a string")])
        return value

    def as_query(self) -> dict[str, Any]:
        """Return the parameters in the form of a query: without nulls, and with booleans as words."""
        present = {name: value for name, value in self.params.items() if value is not None}
        return {
            name: str(value).lower() if isinstance(value, bool) else value for name, value in present.items()
        }


def read_rpc_request(raw: bytes) -> RpcRequest:
    """Parse a JSON-RPC request. After that, errors are rendered as JSON-RPC.

    Raises ParseError, MalformedRequest, InvalidParams.
    """
    # From here on, errors are rendered as JSON-RPC. The specification requires a null id until the id is
    # known.
    g.rpc_id = None
    try:
        body = parse_json(raw, **NUMBERS)
    except MalformedJson as error:
        raise ParseError(error.detail) from None
    if isinstance(body, list):
        raise MalformedRequest("Batches are not supported. Send one request at a time.")
    if not isinstance(body, dict) or body.get("jsonrpc") != VERSION:
        raise MalformedRequest('The body must be an object with "jsonrpc": "2.0".')
    request_id, method, params = body.get("id"), body.get("method"), body.get("params", {})
    # Refuse a request without an id: JSON-RPC treats it as a notification, so its sender would not learn
    # about an error.
    if "id" not in body or isinstance(request_id, dict | list | bool):
        raise MalformedRequest('"id" must be a string or a number. Notifications are not supported.')
    g.rpc_id = request_id
    if not isinstance(method, str):
        raise MalformedRequest('"method" must be a string.')
    if not isinstance(params, dict):
        raise InvalidParams('"params" must be an object.')
    return RpcRequest(id=request_id, method=method, params=params)


def answer_rpc_errors(app: Flask) -> None:
    """Render the errors of JSON-RPC requests as JSON-RPC."""

    def wrap(response: Response) -> Response:
        if "rpc_id" not in g or response.status_code < _FIRST_ERROR:
            return response
        error = json.loads(response.get_data())["error"]
        # Leave other errors unchanged: gateways and clients understand their status and HTTP+JSON body.
        if error["details"][0]["reason"] in CODES:
            response.set_data(render(_error(g.rpc_id, error)))
            response.status_code = 200
        return response

    app.after_request(wrap)


def _error(request_id: Any, error: Mapping[str, Any]) -> dict[str, Any]:
    details = error["details"]
    code = CODES.get(details[0]["reason"], CODES["INTERNAL_ERROR"])
    described = {"code": code, "message": error["message"], "data": details}
    return {"jsonrpc": VERSION, "id": request_id, "error": described}
