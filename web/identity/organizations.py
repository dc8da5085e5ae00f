"""Routes of organizations, their members and audit events."""

from uuid import UUID

from shared.identity import audit
from shared.identity.access.roles import Role
from shared.identity.directory import memberships, organizations
from shared.identity.errors import AlreadyExists, GrantExceedsGranter, LastOwner
from web.framework.administration import ORGANIZATION, AdministrationRoutes, created
from web.framework.calls import JsonResponse, RequestContext
from web.identity import schemas

routes = AdministrationRoutes("organizations")


@routes.creates(
    "/organizations",
    schemas.NewOrganization,
    schemas.OrganizationBody,
    summary="Create an organization with its first owner; for operators",
)
def create_organization(call: RequestContext) -> JsonResponse:
    body: schemas.NewOrganization = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        made = organizations.create_organization(session, actor=actor, name=body.name, owner_id=body.owner_id)
    return created(call, schemas.OrganizationBody.of(made), f"/organizations/{made.id}")


routes.lists(
    "/organizations",
    organizations.list_organizations,
    schemas.OrganizationPage,
    summary="List the caller's organizations; for operators all of them",
)
organization = routes.resource("/organizations/<id:organization_id>", schemas.OrganizationBody)
organization.reads("read_organization", organizations.get_organization, summary="Get an organization")


@routes.changes(
    "PATCH",
    "/organizations/<id:organization_id>",
    schemas.ChangedOrganization,
    schemas.OrganizationBody,
    summary="Update an organization's name",
)
def rename_organization(call: RequestContext, organization_id: UUID) -> JsonResponse:
    body: schemas.ChangedOrganization = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        changed = organizations.rename_organization(
            session, actor=actor, organization_id=organization_id, name=body.name
        )
    return JsonResponse(body=schemas.OrganizationBody.of(changed))


organization.acts(
    "suspend",
    organizations.suspend_organization,
    summary="Suspend an organization: work in its name or at its cost is refused; for operators",
)
organization.acts(
    "resume", organizations.resume_organization, summary="Resume a suspended organization; for operators"
)


@routes.creates(
    "/organizations/<id:organization_id>/members",
    schemas.NewMember,
    schemas.MemberBody,
    AlreadyExists,
    GrantExceedsGranter,
    summary="Add a member by address, without an invitation; for operators",
)
def add_member(call: RequestContext, organization_id: UUID) -> JsonResponse:
    body: schemas.NewMember = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        made = memberships.add_member(
            session, actor=actor, organization_id=organization_id, email=body.email, role=Role(body.role)
        )
    # A membership has no id, so organization and user identify it.
    path = f"/organizations/{organization_id}/members/{made.user_id}"
    return created(call, schemas.MemberBody.of(made), path)


routes.lists(
    f"{ORGANIZATION}/members",
    memberships.list_members,
    schemas.MemberPage,
    summary="List the members of an organization",
)
member = routes.resource(f"{ORGANIZATION}/members/<id:user_id>", schemas.MemberBody)
member.reads("read_member", memberships.get_member, summary="Get a member")


@routes.changes(
    "PATCH",
    "/organizations/<id:organization_id>/members/<id:user_id>",
    schemas.ChangedMember,
    schemas.MemberBody,
    GrantExceedsGranter,
    LastOwner,
    summary="Update a member's role; only owners change owners, and the last owner stays",
)
def change_member_role(call: RequestContext, organization_id: UUID, user_id: UUID) -> JsonResponse:
    body: schemas.ChangedMember = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        changed = memberships.change_member_role(
            session, actor=actor, organization_id=organization_id, user_id=user_id, role=Role(body.role)
        )
    return JsonResponse(body=schemas.MemberBody.of(changed))


member.removes(
    memberships.remove_member,
    LastOwner,
    summary="Remove a member, with their role bindings and bound keys in the organization",
)
routes.lists(
    f"{ORGANIZATION}/audit-events",
    audit.list_audit_events,
    schemas.AuditEventPage,
    summary="List an organization's audit events, newest first",
)
