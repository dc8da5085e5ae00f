"""The common interface of the protocol's two bindings. A binding builds requests and reads results, without I/O.

Both bindings return the same JSON: a task, a page of tasks, or a `StreamResponse`. An error has the protocol's reason
if the agent named a reason. It has the HTTP status that the HTTP+JSON binding defines for the error.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from shared.a2a.exact_json import render

JSON = "application/json"
EVENTS = "text/event-stream"
# After this status the agent has certainly done nothing, unlike after the other statuses from 500 on.
NOT_IMPLEMENTED = 501
LISTED_TASKS = 50
HISTORY_LENGTH = 100
"""The number of messages of a task to request. It is large enough for all messages since the last request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request to an agent's server."""

    method: str
    url: str
    body: bytes | None = field(default=None, repr=False)
    accepts: str = JSON

    @classmethod
    def post(cls, url: str, document: Mapping[str, Any], *, is_stream: bool = False) -> Self:
        """Return a POST request with a JSON document as its body. Numbers in the document keep all their digits."""
        body = render(dict(document)).encode()
        return cls(method="POST", url=url, body=body, accepts=EVENTS if is_stream else JSON)


class ErrorResponse(Exception):
    """The agent returned an error."""

    def __init__(
        self, status: int, reason: str | None = None, *, retry_after_seconds: int | None = None
    ) -> None:
        super().__init__(f"{status} {reason}")
        self.status = status
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds

    @property
    def is_busy(self) -> bool:
        """Whether the agent accepted nothing and asks for a later retry."""
        return self.status in (429, 503)

    @property
    def is_broken(self) -> bool:
        """Whether the agent failed internally, so it is unknown what it has done."""
        is_failure = self.status >= 500  # noqa: PLR2004 (the statuses of servers' failures)
        return is_failure and self.status != NOT_IMPLEMENTED and not self.is_busy


class AgentBinding(Protocol):
    """Builds requests and reads results in one binding."""

    def send(self, request: Mapping[str, Any]) -> Call:
        """Return the HTTP request that sends a message and asks for one complete response, not a stream."""

    def stream(self, request: Mapping[str, Any]) -> Call:
        """Return the HTTP request that sends a message and asks for a stream of events."""

    def get(self, task_id: str) -> Call:
        """Return the HTTP request that reads a task."""

    def list_tasks(self, context_id: str) -> Call:
        """Return the HTTP request that lists the newest tasks of a context."""

    def subscribe(self, task_id: str) -> Call:
        """Return the request that subscribes to a task."""

    def cancel(self, task_id: str) -> Call:
        """Return the request that cancels a task."""

    def result(self, document: Any) -> Any:
        """Return the result in a response or an event. Raises ErrorResponse."""

    def read_error(self, status: int, document: Any) -> ErrorResponse:
        """Return the error of a response with an error status. `document` is None if the response is not JSON."""


def reason_of(details: Any) -> str | None:
    """Return the protocol's reason from the details of an error (google.rpc.ErrorInfo), or None."""
    if not isinstance(details, list):
        return None
    reasons = (detail.get("reason") for detail in details if isinstance(detail, dict))
    # Limit the length, because the text comes from another server and the client reads it.
    return next((reason[:64] for reason in reasons if isinstance(reason, str)), None)
