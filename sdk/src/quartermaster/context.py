"""The attribution of the current work: the verified context of a request that the service routed to an agent.

Clients read it for each request, and forward the attribution unchanged. Without a context they send none, and the work
is the deployment's own. The context is a contextvar, so concurrent requests are isolated; a thread that you start
needs `contextvars.copy_context().run`.
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
    """The author of a message, as a distribution reports it. For display only: it is not authenticated."""

    id: str
    display: str | None = None


@dataclass(frozen=True)
class RequestContext:
    """The contents of a verified attribution.

    `agent_principal` owns files that are stored, the permissions of `execution_principal` apply, and the organization
    `payer` is charged. `attribution` is the header's original value.
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
        # An empty header would silently make this the own work of the deployment.
        if not self.attribution.strip():
            raise ValueError("The attribution is empty; use None as the context of autonomous work.")


_current: ContextVar[RequestContext | None] = ContextVar("quartermaster_context", default=None)


def current() -> RequestContext | None:
    """Return the context of the current request, or None for autonomous work."""
    return _current.get()


@contextmanager
def use(context: RequestContext | None) -> Iterator[None]:
    """Set the context for the block; None means autonomous work."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)
