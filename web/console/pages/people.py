"""The pages of people: members, invitations, identities, role bindings, and audit events."""

from uuid import UUID

from flask import Response

from shared.identity.access.permissions import Permission
from shared.identity.access.roles import MEMBERSHIP_ROLES, Role, ScopeKind
from shared.identity.audit import list_audit_events
from shared.identity.directory.identities import (
    create_principal_identity,
    disable_identity,
    enable_identity,
    list_identities,
)
from shared.identity.directory.invitations import invite_member, list_invitations, revoke_invitation
from shared.identity.directory.memberships import change_member_role, list_members, remove_member
from shared.identity.directory.role_bindings import bind_identity_role, list_role_bindings, unbind_role
from shared.pagination import MAX_LIMIT
from web.console.declarations import ConsoleRoutes, go_to
from web.console.forms import Form, invalid_field, read_id, require
from web.console.navigation import Group
from web.console.page_context import PageContext
from web.console.queries import CursorQuery

routes = ConsoleRoutes("people")

PAGE = "/console/people"
IDENTITIES = f"{PAGE}/identities"
_ROLES = sorted(role.value for role in MEMBERSHIP_ROLES)
_SHOWN_INVITATIONS = 20


@routes.page(
    "/people",
    title="People and roles",
    permission=Permission.ORGANIZATION_READ,
    navigation=Group.ORGANIZATION,
    tab="Members",
    summary="List members and invitations",
    query=CursorQuery,
)
def show_people(context: PageContext) -> Response:
    actor, organization_id = context.actor, context.organization_id
    may_manage = context.holds(Permission.MEMBER_MANAGE)
    with context.services.database.autocommit() as session:
        members = list_members(
            session, actor=actor, organization_id=organization_id, **context.call.query.position
        )
        invited = (
            # Only managers see invitations, which contain addresses of people who are no members yet.
            list_invitations(session, actor=actor, organization_id=organization_id, limit=_SHOWN_INVITATIONS)
            if may_manage
            else None
        )
    return context.render(
        "people.html",
        members=members,
        invitations=[at for at in invited.items if not at.accepted_at] if invited else [],
        roles=_ROLES,
        may_manage=may_manage,
        user_id=context.user_id,
    )


@routes.action(
    "/people/invitations",
    summary="Create an invitation",
    rest="create_invitation",
    command="invitations create",
    step_up=PAGE,
)
def invite(context: PageContext) -> Response:
    with context.services.database.transaction() as session:
        issued = invite_member(
            session,
            actor=context.actor,
            organization_id=context.organization_id,
            email=require(context.form, "email"),
            role=_role(context.form),
        )
    return context.render("invited.html", invitation=issued.invitation, token=issued.token.value)


routes.action_calling(
    "/people/invitations/<id:invitation_id>/revoke",
    revoke_invitation,
    return_to=PAGE,
    summary="Revoke an invitation",
    rest="revoke_invitation",
    command="invitations revoke",
)


@routes.action(
    "/people/<id:user_id>/role",
    summary="Update a member's role",
    rest="change_member_role",
    command="members change-role",
    step_up=PAGE,
)
def set_role(context: PageContext, user_id: UUID) -> Response:
    with context.services.database.transaction() as session:
        change_member_role(
            session,
            actor=context.actor,
            organization_id=context.organization_id,
            user_id=user_id,
            role=_role(context.form),
        )
    return go_to(PAGE)


routes.action_calling(
    "/people/<id:user_id>/remove",
    remove_member,
    return_to=PAGE,
    of_organization=True,
    summary="Remove a member",
    rest="remove_member",
    command="members remove",
    step_up=PAGE,
)


@routes.page(
    "/people/identities",
    title="Identities and roles",
    permission=Permission.ORGANIZATION_READ,
    navigation="/people",
    tab="Identities and roles",
    summary="List identities and role bindings",
    query=CursorQuery,
)
def show_identities(context: PageContext) -> Response:
    actor, organization_id = context.actor, context.organization_id
    with context.services.database.autocommit() as session:
        identities = list_identities(
            session, actor=actor, organization_id=organization_id, **context.call.query.position
        )
        bindings = list_role_bindings(session, actor=actor, organization_id=organization_id, limit=MAX_LIMIT)
        ids = [
            at
            for one in bindings.items
            for at in (one.subject_identity_id, one.subject_user_id, one.scope_id)
        ]
        labels = context.labels(session, ids)
    return context.render(
        "identities.html",
        identities=identities,
        bindings=bindings,
        labels=labels,
        roles=sorted(role.value for role in Role),
        may_manage=context.holds(Permission.IDENTITY_MANAGE),
        may_bind=context.holds(Permission.ROLE_MANAGE),
    )


@routes.action(
    "/people/identities",
    summary="Create a Principal Identity",
    rest="create_principal_identity",
    command="identities create",
)
def add_identity(context: PageContext) -> Response:
    with context.services.database.transaction() as session:
        create_principal_identity(
            session,
            actor=context.actor,
            organization_id=context.organization_id,
            name=require(context.form, "name"),
        )
    return go_to(IDENTITIES)


routes.action_calling(
    "/people/identities/<id:identity_id>/disable",
    disable_identity,
    return_to=IDENTITIES,
    summary="Disable an identity",
    rest="disable_identity",
    command="identities disable",
    step_up=IDENTITIES,
)


routes.action_calling(
    "/people/identities/<id:identity_id>/enable",
    enable_identity,
    return_to=IDENTITIES,
    summary="Enable a disabled identity",
    rest="enable_identity",
    command="identities enable",
    step_up=IDENTITIES,
)


@routes.action(
    "/people/bindings",
    summary="Create a role binding of an identity over another",
    rest="bind_role",
    command="role-bindings bind-identity",
    step_up=IDENTITIES,
)
def bind(context: PageContext) -> Response:
    if context.form.get("role") not in set(Role):
        raise invalid_field("role", f"must be one of {', '.join(sorted(Role))}")
    with context.services.database.transaction() as session:
        bind_identity_role(
            session,
            actor=context.actor,
            organization_id=context.organization_id,
            identity_id=read_id(context.form, "subject"),
            role=Role(context.form["role"]),
            scope_kind=ScopeKind.IDENTITY,
            scope_id=read_id(context.form, "scope"),
        )
    return go_to(IDENTITIES)


routes.action_calling(
    "/people/bindings/<id:binding_id>/unbind",
    unbind_role,
    return_to=IDENTITIES,
    summary="Delete a role binding",
    rest="unbind_role",
    command="role-bindings unbind",
    step_up=IDENTITIES,
)


@routes.page(
    "/people/audit",
    title="Audit",
    permission=Permission.AUDIT_READ,
    navigation="/people",
    tab="Audit",
    summary="List what was done, newest first",
    query=CursorQuery,
)
def show_audit(context: PageContext) -> Response:
    with context.services.database.autocommit() as session:
        events = list_audit_events(
            session,
            actor=context.actor,
            organization_id=context.organization_id,
            **context.call.query.position,
        )
        labels = context.labels(session, [at.actor_id for at in events.items])
    return context.render("audit.html", events=events, labels=labels)


def _role(form: Form) -> Role:
    # Do not use choose(): a form without a role must not grant the first role.
    if form.get("role") not in _ROLES:
        raise invalid_field("role", f"must be one of {', '.join(_ROLES)}")
    return Role(form["role"])
