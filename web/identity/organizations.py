"""Administer organizations, their members, and read what was done in them."""

from __future__ import annotations

from uuid import UUID

from shared.identity import audit, memberships, organizations
from shared.identity.errors import AlreadyExists, GrantExceedsGranter, LastOwner
from shared.identity.roles import Role
from web.administration import AdministrationRoutes, created
from web.calls import Answer, Call
from web.identity import schemas

routes = AdministrationRoutes("organizations")


@routes.creates("/organizations", schemas.NewOrganization, schemas.OrganizationBody)
def create_organization(call: Call) -> Answer:
    """Create an organization with its first owner; for operators."""
    by = call.actor
    body: schemas.NewOrganization = call.read_body()
    with call.services.database.transaction() as session:
        made = organizations.create_organization(session, by=by, name=body.name, owner_id=body.owner_id)
    return created(call, schemas.OrganizationBody.of(made), f"/organizations/{made.id}")


@routes.lists("/organizations", schemas.OrganizationPage)
def list_organizations(call: Call) -> Answer:
    """List the caller's organizations; for operators all of them."""
    by = call.actor
    with call.services.database.transaction() as session:
        page = organizations.list_organizations(session, by=by, **call.query.position)
    return Answer(body=schemas.OrganizationPage.of(page))


@routes.reads("/organizations/<id:organization_id>", schemas.OrganizationBody)
def read_organization(call: Call, organization_id: UUID) -> Answer:
    """Get an organization."""
    by = call.actor
    with call.services.database.transaction() as session:
        found = organizations.get_organization(session, by=by, organization_id=organization_id)
    return Answer(body=schemas.OrganizationBody.of(found))


@routes.changes(
    "PATCH",
    "/organizations/<id:organization_id>",
    schemas.ChangedOrganization,
    schemas.OrganizationBody,
)
def rename_organization(call: Call, organization_id: UUID) -> Answer:
    """Update an organization's name."""
    by = call.actor
    body: schemas.ChangedOrganization = call.read_body()
    with call.services.database.transaction() as session:
        changed = organizations.rename_organization(
            session, by=by, organization_id=organization_id, name=body.name
        )
    return Answer(body=schemas.OrganizationBody.of(changed))


@routes.acts("/organizations/<id:organization_id>/suspend", schemas.OrganizationBody)
def suspend_organization(call: Call, organization_id: UUID) -> Answer:
    """Suspend an organization: nothing is done in its name or at its cost; for operators."""
    by = call.actor
    with call.services.database.transaction() as session:
        changed = organizations.suspend_organization(session, by=by, organization_id=organization_id)
    return Answer(body=schemas.OrganizationBody.of(changed))


@routes.acts("/organizations/<id:organization_id>/resume", schemas.OrganizationBody)
def resume_organization(call: Call, organization_id: UUID) -> Answer:
    """Resume a suspended organization; for operators."""
    by = call.actor
    with call.services.database.transaction() as session:
        changed = organizations.resume_organization(session, by=by, organization_id=organization_id)
    return Answer(body=schemas.OrganizationBody.of(changed))


@routes.creates(
    "/organizations/<id:organization_id>/members",
    schemas.NewMember,
    schemas.MemberBody,
    AlreadyExists,
    GrantExceedsGranter,
)
def add_member(call: Call, organization_id: UUID) -> Answer:
    """Add a member by their address, without an invitation; for operators."""
    by = call.actor
    body: schemas.NewMember = call.read_body()
    with call.services.database.transaction() as session:
        made = memberships.add_member(
            session, by=by, organization_id=organization_id, email=body.email, role=Role(body.role)
        )
    path = f"/organizations/{organization_id}/members/{made.user_id}"
    return created(call, schemas.MemberBody.of(made), path)


@routes.lists("/organizations/<id:organization_id>/members", schemas.MemberPage)
def list_members(call: Call, organization_id: UUID) -> Answer:
    """List the members of an organization."""
    by = call.actor
    with call.services.database.transaction() as session:
        page = memberships.list_members(
            session, by=by, organization_id=organization_id, **call.query.position
        )
    return Answer(body=schemas.MemberPage.of(page))


@routes.reads("/organizations/<id:organization_id>/members/<id:user_id>", schemas.MemberBody)
def read_member(call: Call, organization_id: UUID, user_id: UUID) -> Answer:
    """Get a member."""
    by = call.actor
    with call.services.database.transaction() as session:
        found = memberships.get_member(session, by=by, organization_id=organization_id, user_id=user_id)
    return Answer(body=schemas.MemberBody.of(found))


@routes.changes(
    "PATCH",
    "/organizations/<id:organization_id>/members/<id:user_id>",
    schemas.ChangedMember,
    schemas.MemberBody,
    GrantExceedsGranter,
    LastOwner,
)
def change_member_role(call: Call, organization_id: UUID, user_id: UUID) -> Answer:
    """Update a member's role; only owners change owners, and one owner stays."""
    by = call.actor
    body: schemas.ChangedMember = call.read_body()
    with call.services.database.transaction() as session:
        changed = memberships.change_member_role(
            session, by=by, organization_id=organization_id, user_id=user_id, role=Role(body.role)
        )
    return Answer(body=schemas.MemberBody.of(changed))


@routes.removes("/organizations/<id:organization_id>/members/<id:user_id>", LastOwner)
def remove_member(call: Call, organization_id: UUID, user_id: UUID) -> Answer:
    """Remove a member, with their role bindings and bound keys in the organization."""
    by = call.actor
    with call.services.database.transaction() as session:
        memberships.remove_member(session, by=by, organization_id=organization_id, user_id=user_id)
    return Answer(status=204)


@routes.lists("/organizations/<id:organization_id>/audit-events", schemas.AuditEventPage)
def list_audit_events(call: Call, organization_id: UUID) -> Answer:
    """List an organization's audit events, newest first."""
    by = call.actor
    with call.services.database.transaction() as session:
        page = audit.list_audit_events(session, by=by, organization_id=organization_id, **call.query.position)
    return Answer(body=schemas.AuditEventPage.of(page))
