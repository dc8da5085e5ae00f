"""What the two bindings of the protocol have in common, without I/O: an operation becomes a call, an answer a value.

Results are the same JSON in both: a task, a page of tasks, or a `StreamResponse`. A refusal carries the protocol's
reason where it names one, and the HTTP status that it has or would have.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from shared.a2a.exact_json import render

JSON = "application/json"
EVENTS = "text/event-stream"
NOT_IMPLEMENTED = 501
LISTED_TASKS = 50
HISTORY_LENGTH = 100
"""Messages of a task that are asked for: what it has said since it was last asked is among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request to an agent's server."""

    method: str
    url: str
    body: bytes | None = field(default=None, repr=False)
    accepts: str = JSON

    @classmethod
    def post(cls, url: str, document: Mapping[str, Any], *, is_stream: bool = False) -> Self:
        """Describe a request with a body; its numbers stay as their authors wrote them."""
        body = render(dict(document)).encode()
        return cls(method="POST", url=url, body=body, accepts=EVENTS if is_stream else JSON)


class ErrorResponse(Exception):
    """The agent answered with an error."""

    def __init__(
        self, status: int, reason: str | None = None, *, retry_after_seconds: int | None = None
    ) -> None:
        super().__init__(f"{status} {reason}")
        self.status = status
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds

    @property
    def is_busy(self) -> bool:
        """Whether the agent took nothing, and asks to come back later."""
        return self.status in (429, 503)

    @property
    def is_broken(self) -> bool:
        """Whether something went wrong within the agent, so that nobody knows what it has done."""
        is_failure = self.status >= 500  # noqa: PLR2004 (the statuses of servers' failures)
        return is_failure and self.status != NOT_IMPLEMENTED and not self.is_busy


class AgentBinding(Protocol):
    """Writes calls and reads answers."""

    def send(self, request: Mapping[str, Any]) -> Call:
        """Send a message, to be answered at once."""

    def stream(self, request: Mapping[str, Any]) -> Call:
        """Send a message, to be answered with a stream."""

    def get(self, task_id: str) -> Call:
        """Get a task."""

    def list_tasks(self, context_id: str) -> Call:
        """List the newest tasks of a context."""

    def subscribe(self, task_id: str) -> Call:
        """Subscribe to a task."""

    def cancel(self, task_id: str) -> Call:
        """Cancel a task."""

    def result(self, document: Any) -> Any:
        """Give what an answer or an event says. Raises ErrorResponse."""

    def read_error(self, status: int, document: Any) -> ErrorResponse:
        """Read an answer with an error's status; `document` is None where it is no JSON."""


def reason_of(details: Any) -> str | None:
    """Find the protocol's reason among the details of an error (google.rpc.ErrorInfo)."""
    if not isinstance(details, list):
        return None
    reasons = (detail.get("reason") for detail in details if isinstance(detail, dict))
    return next((reason[:64] for reason in reasons if isinstance(reason, str)), None)
