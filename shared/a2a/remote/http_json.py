"""The client side of the HTTP+JSON binding of A2A 1.0 (protocol definition, section 11)."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from shared.a2a.remote.bindings import HISTORY_LENGTH, LISTED_TASKS, Call, ErrorResponse, reason_of


class HttpJson:
    """The binding for one interface."""

    def __init__(self, url: str, tenant: str | None) -> None:
        self._base = url if tenant is None else f"{url}/{quote(tenant, safe='')}"
        self._tenant = {} if tenant is None else {"tenant": tenant}

    def send(self, request: Mapping[str, Any]) -> Call:
        """Return the HTTP request that sends a message and asks for one complete response, not a stream."""
        return self._post("/message:send", {**self._tenant, **request})

    def stream(self, request: Mapping[str, Any]) -> Call:
        """Return the HTTP request that sends a message and asks for a stream of events."""
        return self._post("/message:stream", {**self._tenant, **request}, is_stream=True)

    def get(self, task_id: str) -> Call:
        """Return the HTTP request that reads a task."""
        return self._get(_task(task_id), historyLength=HISTORY_LENGTH)

    def list_tasks(self, context_id: str) -> Call:
        """Return the HTTP request that lists the newest tasks of a context."""
        return self._get("/tasks", contextId=context_id, pageSize=LISTED_TASKS, historyLength=HISTORY_LENGTH)

    def subscribe(self, task_id: str) -> Call:
        """Return the request that subscribes to a task."""
        return self._post(f"{_task(task_id)}:subscribe", self._tenant, is_stream=True)

    def cancel(self, task_id: str) -> Call:
        """Return the request that cancels a task."""
        return self._post(f"{_task(task_id)}:cancel", self._tenant)

    def result(self, document: Any) -> Any:
        """Return the result in a response or an event. Raises ErrorResponse."""
        if isinstance(document, dict) and isinstance(document.get("error"), dict):
            raise self.read_error(0, document)
        return document

    def read_error(self, status: int, document: Any) -> ErrorResponse:
        """Return the error of a response with an error status."""
        error = document.get("error") if isinstance(document, dict) else None
        if not isinstance(error, dict):
            return ErrorResponse(status)
        code = error.get("code")
        return ErrorResponse(
            status or (code if isinstance(code, int) else 500), reason_of(error.get("details"))
        )

    def _post(self, path: str, document: Mapping[str, Any], *, is_stream: bool = False) -> Call:
        return Call.post(self._base + path, document, is_stream=is_stream)

    def _get(self, path: str, **query: Any) -> Call:
        return Call(method="GET", url=f"{self._base}{path}?{urlencode(query)}")


def _task(task_id: str) -> str:
    # Quote the id, because a slash in the agent's id must not start another path segment.
    return f"/tasks/{quote(task_id, safe='')}"
