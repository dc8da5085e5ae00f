"""The context of the current request: the verified attribution that the service sent to an agent with the request.

Clients read the context for each request, and forward the attribution unchanged. Without a context, clients send no
attribution, and the work is the deployment's own. The context is a contextvar, so concurrent requests are isolated. To
use the context in a thread that you start, run the thread's function with `contextvars.copy_context().run`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

ATTRIBUTION_HEADER = "Service-Usage-Attribution"


@dataclass(frozen=True)
class ReportedCaller:
    """The author of a message, as a distribution reports. Use it for display only: the author is not authenticated."""

    id: str
    display: str | None = None


@dataclass(frozen=True)
class RequestContext:
    """The contents of a verified attribution.

    `agent_principal` owns the files that the agent stores. The permissions of `execution_principal` apply. The
    organization `payer` is charged. `attribution` is the original value of the header.
    """

    agent_principal: UUID
    execution_principal: UUID
    payer: UUID
    organization: UUID
    deployment_id: UUID
    transaction_id: str
    attribution: str = field(repr=False)
    expires_at: datetime
    distribution_id: UUID | None = None
    reported_caller: ReportedCaller | None = None

    def __post_init__(self) -> None:
        # Reject an empty value: with an empty header, the work would silently count as the deployment's own.
        if not self.attribution.strip():
            raise ValueError("The attribution is empty; use None as the context of autonomous work.")


_current: ContextVar[RequestContext | None] = ContextVar("quartermaster_context", default=None)


def current() -> RequestContext | None:
    """Return the context of the current request, or None if the agent works without a request."""
    return _current.get()


@contextmanager
def use(context: RequestContext | None) -> Iterator[None]:
    """Set the context while the block runs. None means that the agent works without a request."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)
