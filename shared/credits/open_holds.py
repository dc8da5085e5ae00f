"""List an organization's open holds: the calls for which credits are reserved now.

A hold is open from its call's acceptance until it is settled, voided or released (`holds.py`). `unresolved` is one
whose worker was lost; it is settled from what was streamed.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Unpack
from uuid import UUID

from sqlalchemy import Row, select

from shared.credits.holds import Attribution, principal_of
from shared.credits.tables import invocations
from shared.db.database import Session
from shared.db.schema import columns_of
from shared.identity.access.authorization import Actor, authorize_administration
from shared.identity.access.permissions import Permission
from shared.identity.lookups import require_organization
from shared.pagination import Page, Position, descending, paginate


class HoldState(StrEnum):
    """Where an open call is."""

    HELD = "held"
    DISPATCHED = "dispatched"
    UNRESOLVED = "unresolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenHold(Attribution):
    """The credits that a call in progress reserves, in µcr, and who is responsible for it."""

    id: UUID
    organization_id: UUID
    state: HoldState
    hold: int
    model: str
    provider: str | None
    created_at: datetime
    lease_until: datetime


def list_holds(
    session: Session, *, actor: Actor, organization_id: UUID, **page: Unpack[Position]
) -> Page[OpenHold]:
    """List an organization's open holds, newest first. Raises PermissionDenied, ResourceNotFound."""
    authorize_administration(actor, Permission.CREDIT_READ, organization_id)
    require_organization(session, organization_id)
    statement = select(*columns_of(OpenHold, invocations)).where(
        invocations.c.organization_id == organization_id,
        invocations.c.state.in_([state.value for state in HoldState]),
    )
    return paginate(session, statement, descending(invocations.c.created_at, invocations.c.id), _hold, **page)


def _hold(row: Row[Any]) -> OpenHold:
    values = {**row._asdict(), "state": HoldState(row.state), "principal_id": principal_of(row)}
    return OpenHold(**values)
