"""The client side of the JSON-RPC binding of A2A 1.0 (protocol definition, section 9)."""

from collections.abc import Mapping
from typing import Any

from shared.a2a.remote.bindings import HISTORY_LENGTH, LISTED_TASKS, Call, ErrorResponse, reason_of
from shared.a2a.remote.errors import ResponseInvalid

_ERRORS = {
    -32001: (404, "TASK_NOT_FOUND"),
    -32002: (400, "TASK_NOT_CANCELABLE"),
    -32003: (400, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    -32004: (400, "UNSUPPORTED_OPERATION"),
    -32005: (400, "CONTENT_TYPE_NOT_SUPPORTED"),
    -32006: (500, "INVALID_AGENT_RESPONSE"),
    -32007: (400, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
    -32008: (400, "EXTENSION_SUPPORT_REQUIRED"),
    -32009: (400, "VERSION_NOT_SUPPORTED"),
    -32600: (400, "INVALID_REQUEST"),
    -32601: (404, "METHOD_NOT_FOUND"),
    -32602: (400, "INVALID_PARAMS"),
    -32700: (400, "PARSE_ERROR"),
}
_UNKNOWN = (500, "INTERNAL_ERROR")


class JsonRpc:
    """The binding for one interface."""

    def __init__(self, url: str, tenant: str | None) -> None:
        self._url = url
        self._tenant = {} if tenant is None else {"tenant": tenant}

    def send(self, request: Mapping[str, Any]) -> Call:
        """Return the HTTP request that sends a message and asks for one complete response, not a stream."""
        return self._call("SendMessage", request)

    def stream(self, request: Mapping[str, Any]) -> Call:
        """Return the HTTP request that sends a message and asks for a stream of events."""
        return self._call("SendStreamingMessage", request, is_stream=True)

    def get(self, task_id: str) -> Call:
        """Return the HTTP request that reads a task."""
        return self._call("GetTask", {"id": task_id, "historyLength": HISTORY_LENGTH})

    def list_tasks(self, context_id: str) -> Call:
        """Return the HTTP request that lists the newest tasks of a context."""
        wanted = {"contextId": context_id, "pageSize": LISTED_TASKS, "historyLength": HISTORY_LENGTH}
        return self._call("ListTasks", wanted)

    def subscribe(self, task_id: str) -> Call:
        """Return the request that subscribes to a task."""
        return self._call("SubscribeToTask", {"id": task_id}, is_stream=True)

    def cancel(self, task_id: str) -> Call:
        """Return the request that cancels a task."""
        return self._call("CancelTask", {"id": task_id})

    def result(self, document: Any) -> Any:
        """Return the result in a response or an event. Raises ErrorResponse, ResponseInvalid."""
        if not isinstance(document, dict):
            raise ResponseInvalid
        if document.get("error") is not None:
            raise self.read_error(200, document)
        if "result" not in document:
            raise ResponseInvalid
        return document["result"]

    def read_error(self, status: int, document: Any) -> ErrorResponse:
        """Return the error of a response. Most JSON-RPC errors have the HTTP status 200."""
        error = document.get("error") if isinstance(document, dict) else None
        if not isinstance(error, dict):
            return ErrorResponse(status)
        code = error.get("code")
        # JSON-RPC errors arrive with status 200: map their codes to the statuses of the HTTP binding.
        known, reason = _ERRORS.get(code, _UNKNOWN) if isinstance(code, int) else _UNKNOWN
        is_of_http = status >= 400  # noqa: PLR2004 (the statuses of errors)
        return ErrorResponse(status if is_of_http else known, reason_of(error.get("data")) or reason)

    def _call(self, method: str, params: Mapping[str, Any], *, is_stream: bool = False) -> Call:
        document = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**self._tenant, **params}}
        return Call.post(self._url, document, is_stream=is_stream)
