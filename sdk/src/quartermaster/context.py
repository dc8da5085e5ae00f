"""On whose behalf code runs: the verified context of a request that the service routed to an agent.

Clients read it for each request and forward the attribution unchanged. Without a context they send none: the work is
then the deployment's own. A context lives in a contextvar, so that concurrent requests never see each other's; a
thread started by hand needs `contextvars.copy_context().run`, as with every contextvar.
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
    """Who spoke, as a distribution reports it: for display only, it proves and permits nothing."""

    id: str
    display: str | None = None


@dataclass(frozen=True)
class RequestContext:
    """What a verified attribution says.

    `agent_principal` will own what is stored, `execution_principal` is whose permissions count, `payer` is the
    organization that pays. `attribution` is the header's value as it came.
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
        if not self.attribution.strip():
            raise ValueError("An attribution is never empty; without one there is no context.")


_current: ContextVar[RequestContext | None] = ContextVar("quartermaster_context", default=None)


def current() -> RequestContext | None:
    """Give the context of the request that is being worked on, None for autonomous work."""
    return _current.get()


@contextmanager
def use(context: RequestContext | None) -> Iterator[None]:
    """Work in a context; None for autonomous work."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)
