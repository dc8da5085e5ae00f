"""Effective permissions: a subject's bindings and a user's membership, as permissions by scope id.

A scope id is an organization's or an owner identity's; ids never collide.
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
    """Select as one JSON value, `bindings`, the [role, scope kind, scope id] of the bindings that match."""
    columns = role_bindings.c
    binding: Any = func.json_build_array(columns.role, columns.scope_kind, columns.scope_id)
    return select(func.json_agg(binding)).where(condition).scalar_subquery().label("bindings")


def identity_permissions(bindings: _Bindings) -> dict[UUID, frozenset[Permission]]:
    """Add up the bindings of an identity."""
    held: dict[UUID, frozenset[Permission]] = {}
    for role, _, scope_id in bindings or ():
        scope = UUID(scope_id)
        held[scope] = held.get(scope, frozenset()) | ROLE_PERMISSIONS[Role(role)]
    return held


def member_permissions(
    organization_id: UUID | None, role: str | None, bindings: _Bindings
) -> dict[UUID, frozenset[Permission]]:
    """Add up a user's membership and the bindings over single identities; without membership there is nothing."""
    if organization_id is None or role is None:
        return {}
    held = identity_permissions([binding for binding in bindings or () if binding[1] == ScopeKind.IDENTITY])
    held[organization_id] = ROLE_PERMISSIONS[Role(role)]
    return held
