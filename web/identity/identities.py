"""Administer identities and the roles bound to them, and to users over them."""

from __future__ import annotations

from uuid import UUID

from shared.database import Session
from shared.identity import identities, role_bindings
from shared.identity.authorization import Actor
from shared.identity.errors import AlreadyExists, GrantExceedsGranter
from shared.identity.roles import Role, ScopeKind
from web.administration import AdministrationRoutes, created
from web.calls import Answer, Call
from web.identity import agent_schemas as schemas

routes = AdministrationRoutes("identities")


@routes.creates(
    "/organizations/<id:organization_id>/identities",
    schemas.NewPrincipalIdentity,
    schemas.IdentityBody,
    GrantExceedsGranter,
)
def create_principal_identity(call: Call, organization_id: UUID) -> Answer:
    """Create a Principal Identity, which can receive messages."""
    by = call.actor
    body: schemas.NewPrincipalIdentity = call.read_body()
    with call.services.database.transaction() as session:
        made = identities.create_principal_identity(
            session, by=by, organization_id=organization_id, name=body.name
        )
    return created(call, schemas.IdentityBody.of(made), f"/identities/{made.id}")


@routes.lists("/organizations/<id:organization_id>/identities", schemas.IdentityPage)
def list_identities(call: Call, organization_id: UUID) -> Answer:
    """List the identities of an organization, of both kinds."""
    by = call.actor
    with call.services.database.transaction() as session:
        page = identities.list_identities(
            session, by=by, organization_id=organization_id, **call.query.position
        )
    return Answer(body=schemas.IdentityPage.of(page))


@routes.reads("/identities/<id:identity_id>", schemas.IdentityBody)
def read_identity(call: Call, identity_id: UUID) -> Answer:
    """Get an identity."""
    by = call.actor
    with call.services.database.transaction() as session:
        found = identities.get_identity(session, by=by, identity_id=identity_id)
    return Answer(body=schemas.IdentityBody.of(found))


@routes.acts("/identities/<id:identity_id>/disable", schemas.IdentityBody)
def disable_identity(call: Call, identity_id: UUID) -> Answer:
    """Disable an identity: nothing is executed as it or received for it."""
    by = call.actor
    with call.services.database.transaction() as session:
        changed = identities.disable_identity(session, by=by, identity_id=identity_id)
    return Answer(body=schemas.IdentityBody.of(changed))


@routes.acts("/identities/<id:identity_id>/enable", schemas.IdentityBody)
def enable_identity(call: Call, identity_id: UUID) -> Answer:
    """Enable a disabled identity."""
    by = call.actor
    with call.services.database.transaction() as session:
        changed = identities.enable_identity(session, by=by, identity_id=identity_id)
    return Answer(body=schemas.IdentityBody.of(changed))


@routes.creates(
    "/organizations/<id:organization_id>/role-bindings",
    schemas.NewRoleBinding,
    schemas.RoleBindingBody,
    AlreadyExists,
    GrantExceedsGranter,
)
def bind_role(call: Call, organization_id: UUID) -> Answer:
    """Create a role binding for an identity, or for a member over one identity; never more than one holds oneself."""
    by = call.actor
    body: schemas.NewRoleBinding = call.read_body()
    with call.services.database.transaction() as session:
        made = _bind(session, by, organization_id, body)
    return created(call, schemas.RoleBindingBody.of(made), f"/role-bindings/{made.id}")


@routes.lists("/organizations/<id:organization_id>/role-bindings", schemas.RoleBindingPage)
def list_role_bindings(call: Call, organization_id: UUID) -> Answer:
    """List the role bindings of an organization."""
    by = call.actor
    with call.services.database.transaction() as session:
        page = role_bindings.list_role_bindings(
            session, by=by, organization_id=organization_id, **call.query.position
        )
    return Answer(body=schemas.RoleBindingPage.of(page))


@routes.reads("/role-bindings/<id:binding_id>", schemas.RoleBindingBody)
def read_role_binding(call: Call, binding_id: UUID) -> Answer:
    """Get a role binding."""
    by = call.actor
    with call.services.database.transaction() as session:
        found = role_bindings.get_role_binding(session, by=by, binding_id=binding_id)
    return Answer(body=schemas.RoleBindingBody.of(found))


@routes.removes("/role-bindings/<id:binding_id>", GrantExceedsGranter)
def unbind_role(call: Call, binding_id: UUID) -> Answer:
    """Delete a role binding."""
    by = call.actor
    with call.services.database.transaction() as session:
        role_bindings.unbind_role(session, by=by, binding_id=binding_id)
    return Answer(status=204)


def _bind(
    session: Session, by: Actor, organization_id: UUID, body: schemas.NewRoleBinding
) -> role_bindings.RoleBinding:
    if body.subject_identity_id is not None:
        return role_bindings.bind_identity_role(
            session,
            by=by,
            organization_id=organization_id,
            identity_id=body.subject_identity_id,
            role=Role(body.role),
            scope_kind=ScopeKind(body.scope_kind),
            scope_id=body.scope_id,
        )
    return role_bindings.bind_user_role(
        session,
        by=by,
        organization_id=organization_id,
        user_id=body.user_id,
        role=Role(body.role),
        owner_id=body.scope_id,
    )
