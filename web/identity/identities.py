"""Routes of identities and role bindings."""

from uuid import UUID

from shared.db.database import Session
from shared.identity.access.authorization import Actor
from shared.identity.access.roles import Role, ScopeKind
from shared.identity.directory import identities, role_bindings
from shared.identity.errors import AlreadyExists, GrantExceedsGranter
from web.framework.administration import ORGANIZATION, AdministrationRoutes, created
from web.framework.calls import JsonResponse, RequestContext
from web.identity import agent_schemas as schemas

routes = AdministrationRoutes("identities")


@routes.creates(
    "/organizations/<id:organization_id>/identities",
    schemas.NewPrincipalIdentity,
    schemas.IdentityBody,
    GrantExceedsGranter,
    summary="Create a Principal Identity, which can receive messages",
)
def create_principal_identity(call: RequestContext, organization_id: UUID) -> JsonResponse:
    body: schemas.NewPrincipalIdentity = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        made = identities.create_principal_identity(
            session, actor=actor, organization_id=organization_id, name=body.name
        )
    return created(call, schemas.IdentityBody.of(made), f"/identities/{made.id}")


routes.lists(
    f"{ORGANIZATION}/identities",
    identities.list_identities,
    schemas.IdentityPage,
    summary="List the identities of an organization, of both kinds",
)
identity = routes.resource("/identities/<id:identity_id>", schemas.IdentityBody)
identity.reads("read_identity", identities.get_identity, summary="Get an identity")
identity.acts(
    "disable",
    identities.disable_identity,
    summary="Disable an identity: calls as it and messages for it are refused",
)
identity.acts("enable", identities.enable_identity, summary="Enable a disabled identity")


@routes.creates(
    "/organizations/<id:organization_id>/role-bindings",
    schemas.NewRoleBinding,
    schemas.RoleBindingBody,
    AlreadyExists,
    GrantExceedsGranter,
    summary="Create a role binding for an identity, or for a member over one identity; never above the caller's own",
)
def bind_role(call: RequestContext, organization_id: UUID) -> JsonResponse:
    body: schemas.NewRoleBinding = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        made = _bind(session, actor, organization_id, body)
    return created(call, schemas.RoleBindingBody.of(made), f"/role-bindings/{made.id}")


routes.lists(
    f"{ORGANIZATION}/role-bindings",
    role_bindings.list_role_bindings,
    schemas.RoleBindingPage,
    summary="List the role bindings of an organization",
)
role_binding = routes.resource("/role-bindings/<id:binding_id>", schemas.RoleBindingBody)
role_binding.reads("read_role_binding", role_bindings.get_role_binding, summary="Get a role binding")
role_binding.removes(role_bindings.unbind_role, GrantExceedsGranter, summary="Delete a role binding")


def _bind(
    session: Session, actor: Actor, organization_id: UUID, body: schemas.NewRoleBinding
) -> role_bindings.RoleBinding:
    if body.subject_identity_id is not None:
        return role_bindings.bind_identity_role(
            session,
            actor=actor,
            organization_id=organization_id,
            identity_id=body.subject_identity_id,
            role=Role(body.role),
            scope_kind=ScopeKind(body.scope_kind),
            scope_id=body.scope_id,
        )
    # The schema has checked that the scope is an identity. A user's role over the organization belongs to the
    # membership.
    return role_bindings.bind_user_role(
        session,
        actor=actor,
        organization_id=organization_id,
        user_id=body.user_id,
        role=Role(body.role),
        owner_id=body.scope_id,
    )
