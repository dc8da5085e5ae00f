"""Resolve the ids of an organization's identities, deployments, members and keys to names, for display."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import String, cast, literal, select, union_all

from shared.db.database import Session
from shared.identity.tables import api_keys, deployments, identities, memberships, users


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """The name of a resource and its kind: `identity`, `deployment`, `key` or `user`."""

    name: str
    kind: str


def find_labels(session: Session, organization_id: UUID, ids: Iterable[UUID | None]) -> Mapping[UUID, Label]:
    """Return the labels of the ids that belong to the organization. Other and unknown ids are left out."""
    wanted = {at for at in ids if at is not None}
    if not wanted:
        return {}
    named = [
        (identities, identities.c.name, "identity"),
        (deployments, deployments.c.name, "deployment"),
        (api_keys, api_keys.c.name, "key"),
    ]
    selects = [
        select(table.c.id, cast(name, String).label("name"), literal(kind).label("kind")).where(
            table.c.id.in_(wanted), table.c.organization_id == organization_id
        )
        for table, name, kind in named
    ]
    # Use a subquery, which is one index lookup per user: the planner would run a join as a scan of all members.
    is_member = select(literal(True)).where(  # noqa: FBT003 (a value of SQL)
        memberships.c.organization_id == organization_id, memberships.c.user_id == users.c.id
    )
    members = select(users.c.id, users.c.email, literal("user")).where(
        users.c.id.in_(wanted), is_member.scalar_subquery()
    )
    rows = session.execute(union_all(*selects, members))
    return {row.id: Label(name=row.name, kind=row.kind) for row in rows}
