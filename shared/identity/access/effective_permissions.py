"""Compute effective permissions, by scope id, from role bindings and memberships.

A scope id is the id of an organization or of an owner identity. Both are UUIDs, so they share one mapping.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, func, select

from shared.identity.access.permissions import Permission
from shared.identity.access.roles import ROLE_PERMISSIONS, Role, ScopeKind
from shared.identity.tables import role_bindings

PermissionsByScope = Mapping[UUID, frozenset[Permission]]
_Bindings = Sequence[Sequence[str]] | None


def bindings_of(condition: ColumnElement[bool]) -> Any:
    """Return a subquery of the matching bindings: a JSON array `bindings` of [role, scope kind, scope id].

    With one JSON value the enclosing statement still returns one row, in one round trip.
    """
    columns = role_bindings.c
    binding: Any = func.json_build_array(columns.role, columns.scope_kind, columns.scope_id)
    return select(func.json_agg(binding)).where(condition).scalar_subquery().label("bindings")


def identity_permissions(bindings: _Bindings) -> dict[UUID, frozenset[Permission]]:
    """Return the permissions that an identity's bindings grant, by scope id."""
    held: dict[UUID, frozenset[Permission]] = {}
    for role, _, scope_id in bindings or ():
        scope = UUID(scope_id)
        held[scope] = held.get(scope, frozenset()) | ROLE_PERMISSIONS[Role(role)]
    return held


def member_permissions(
    organization_id: UUID | None, role: str | None, bindings: _Bindings
) -> dict[UUID, frozenset[Permission]]:
    """Return the permissions that a user's membership and bindings grant, by scope id; none without a membership."""
    if organization_id is None or role is None:
        return {}
    # Ignore bindings over the organization: only the membership decides a user's role in the organization.
    held = identity_permissions([binding for binding in bindings or () if binding[1] == ScopeKind.IDENTITY])
    held[organization_id] = ROLE_PERMISSIONS[Role(role)]
    return held
