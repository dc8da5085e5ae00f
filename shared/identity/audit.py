"""The audit log of administrative changes.

Each event is written in the transaction of the change that it records, and contains no secrets. A trigger refuses
updates and deletes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Unpack
from uuid import UUID

from sqlalchemy import Row, insert, select

from shared.db.database import Session
from shared.identity.access.authorization import Actor, authorize_administration
from shared.identity.access.callers import ExecutorKind
from shared.identity.access.permissions import Permission
from shared.identity.tables import audit_events
from shared.ids import new_id
from shared.pagination import Page, Position, descending, paginate


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """The record of one administrative change: the actor, the action and the resource."""

    id: UUID
    organization_id: UUID | None
    actor_kind: str
    actor_id: UUID
    action: str
    resource_kind: str
    resource_id: str
    details: Mapping[str, Any]
    request_id: str | None
    credential_id: UUID | None
    client_address: str | None
    at: datetime


RECORD_EVENT = """
INSERT INTO audit_events (id, organization_id, actor_kind, actor_id, action, resource_kind, resource_id, details,
    request_id, credential_id, client_address)
SELECT :audit_id, :audit_organization_id, :audit_actor_kind, :audit_actor_id, :audit_action, :audit_resource_kind,
    :audit_resource_id, CAST(:audit_details AS jsonb), :audit_request_id, :audit_credential_id, :audit_client_address
"""
"""Inserts an audit event as a part of the statement that makes the change.

The caller appends a FROM clause, so that the event is written only if a row changed. `event_parameters` returns the
parameters.
"""


def record(session: Session, actor: Actor, action: str, resource_id: UUID | str, **fields: Any) -> None:
    """Insert an audit event into the caller's transaction.

    `fields` may contain `organization_id` (the resource's organization) and `resource_kind` (default: the part of
    `action` before the dot). All other fields are stored as details, as text.
    """
    session.execute(insert(audit_events).values(_event_values(actor, action, resource_id, **fields)))


def event_parameters(actor: Actor, action: str, resource_id: UUID | str, **fields: Any) -> dict[str, Any]:
    """Return the parameters of `RECORD_EVENT`. The arguments have the same meaning as those of `record`."""
    values = _event_values(actor, action, resource_id, **fields)
    return {f"audit_{name}": value for name, value in values.items()} | {
        "audit_details": json.dumps(values["details"])
    }


def _event_values(
    actor: Actor,
    action: str,
    resource_id: UUID | str,
    *,
    resource_kind: str | None = None,
    organization_id: UUID | None = None,
    **details: Any,
) -> dict[str, Any]:
    executor = actor.caller.executor
    return {
        "id": new_id(),
        "organization_id": organization_id,
        "actor_kind": executor.kind.value,
        "actor_id": executor.id,
        "action": action,
        "resource_kind": resource_kind or action.partition(".")[0],
        "resource_id": str(resource_id),
        "details": {name: value if value is None else str(value) for name, value in details.items()},
        "request_id": actor.request_id,
        # Store null for the command line and the scheduler: they present no credential, and the actor has a
        # placeholder.
        "credential_id": None if executor.kind is ExecutorKind.OPERATOR else actor.caller.credential_id,
        "client_address": actor.client_address,
    }


def list_audit_events(
    session: Session, *, actor: Actor, organization_id: UUID, **page: Unpack[Position]
) -> Page[AuditEvent]:
    """Return a page of an organization's audit events, newest first. Raises PermissionDenied, ResourceNotFound."""
    authorize_administration(actor, Permission.AUDIT_READ, organization_id)
    statement = select(audit_events).where(audit_events.c.organization_id == organization_id)
    return paginate(session, statement, descending(audit_events.c.id), _event, **page)


def _event(row: Row[Any]) -> AuditEvent:
    return AuditEvent(**row._asdict())
