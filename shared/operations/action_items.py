"""List failures of endpoints, imports, notifications and tasks that an organization should correct.

Each query reads a bounded number of rows along an index and counts up to a limit, so its cost does not grow with the
number of failures.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, TextClause, text

from shared.db.database import Session

MAX_ITEMS = 20
MAX_COUNTED = 100
FAILED_TASKS_DAYS = 1
FAILED_IMPORTS_DAYS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadEndpoint:
    """A remote agent's endpoint that does not respond correctly."""

    deployment_id: UUID
    name: str
    problem: str
    checked_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubledDistribution:
    """A distribution with failed or held imports or dead notifications; counts stop at MAX_COUNTED."""

    distribution_id: UUID
    name: str
    held: int
    failed: int
    code: str | None
    """The code of the error for which the newest of these imports failed or is held."""
    dead: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingAgent:
    """An agent with failed tasks in the last day, and the newest of them."""

    deployment_id: UUID
    name: str
    failed: int
    task_id: UUID
    failed_at: datetime


def list_dead_endpoints(session: Session, organization_id: UUID) -> Sequence[DeadEndpoint]:
    """Return endpoints with a problem, the ones checked longest ago first."""
    return [DeadEndpoint(**row._asdict()) for row in _run(session, _ENDPOINTS, organization_id)]


def list_troubled_distributions(session: Session, organization_id: UUID) -> Sequence[TroubledDistribution]:
    """Return distributions with recently failed or held imports, or dead notifications."""
    return [
        TroubledDistribution(**row._asdict())
        for row in _run(
            session, _DISTRIBUTIONS, organization_id, counted=MAX_COUNTED, days=FAILED_IMPORTS_DAYS
        )
    ]


def list_failing_agents(session: Session, organization_id: UUID) -> Sequence[FailingAgent]:
    """Return the agents of the newest tasks that failed in the last day."""
    return [
        FailingAgent(**row._asdict())
        for row in _run(session, _TASKS, organization_id, counted=MAX_COUNTED, days=FAILED_TASKS_DAYS)
    ]


def _run(session: Session, statement: TextClause, organization_id: UUID, **bounds: int) -> Sequence[Row[Any]]:
    return session.execute(statement, {"organization": organization_id, "most": MAX_ITEMS, **bounds}).all()


_ENDPOINTS = text("""
SELECT deployments.id AS deployment_id, deployments.name, found.problem, found.checked_at
FROM deployment_endpoints AS found JOIN deployments ON deployments.id = found.deployment_id
WHERE found.organization_id = :organization AND found.problem IS NOT NULL AND deployments.disabled_at IS NULL
ORDER BY found.checked_at, deployments.id LIMIT :most
""")
_DISTRIBUTIONS = text("""
SELECT looked.id AS distribution_id, looked.name, held.count AS held, failed.count AS failed,
    coalesce(failed.code, held.code) AS code, dead.count AS dead
FROM (
    SELECT id, name FROM distributions WHERE organization_id = :organization AND disabled_at IS NULL
    ORDER BY id DESC LIMIT :counted
) AS looked
CROSS JOIN LATERAL (
    SELECT count(*) AS count, max(code) AS code FROM (
        SELECT code FROM media_imports WHERE distribution_id = looked.id AND state = 'Held'
        ORDER BY created_at LIMIT :counted
    ) AS newest
) AS held
CROSS JOIN LATERAL (
    SELECT count(*) AS count, max(code) AS code FROM (
        SELECT code, ended_at FROM media_imports WHERE distribution_id = looked.id AND state = 'Failed'
        ORDER BY id DESC LIMIT :counted
    ) AS newest WHERE ended_at > now() - make_interval(days => :days)
) AS failed
CROSS JOIN LATERAL (
    SELECT count(*) AS count FROM (
        SELECT 1 FROM deliveries WHERE destination_id = looked.id AND state = 'Dead'
        ORDER BY id DESC LIMIT :counted
    ) AS newest
) AS dead
WHERE held.count + failed.count + dead.count > 0 ORDER BY looked.id LIMIT :most
""")
_TASKS = text("""
SELECT deployments.id AS deployment_id, deployments.name, count(*) AS failed,
    (array_agg(newest.id ORDER BY newest.status_at DESC))[1] AS task_id, max(newest.status_at) AS failed_at
FROM (
    SELECT id, deployment_id, status_at FROM tasks
    WHERE organization_id = :organization AND state = 'TASK_STATE_FAILED' AND is_visible
        AND status_at > now() - make_interval(days => :days)
    ORDER BY status_at DESC, id DESC LIMIT :counted
) AS newest JOIN deployments ON deployments.id = newest.deployment_id
GROUP BY deployments.id, deployments.name ORDER BY failed_at DESC LIMIT :most
""")
