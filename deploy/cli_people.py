"""Commands for organizations, members, invitations, users, API keys and the audit."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import click

from deploy.administration import INSTANT, acts_on, administration, choice, in_utc, paged, show, show_page
from shared.identity import api_keys as keys
from shared.identity import audit, memberships
from shared.identity import invitations as asked
from shared.identity import organizations as domain
from shared.identity import users as people
from shared.identity.authorization import OPERATOR
from shared.identity.roles import MEMBERSHIP_ROLES, Role

_organization = click.option("--organization", "organization_id", type=click.UUID, required=True)
_user = click.option("--user", "user_id", type=click.UUID, required=True)
_role = click.option("--role", type=choice(MEMBERSHIP_ROLES), required=True)


@click.group()
def organizations() -> None:
    """Manage organizations."""


@organizations.command("create")
@click.option("--name", required=True)
@click.option("--owner", "owner_id", type=click.UUID, required=True, help="The user who owns it.")
def create_organization(name: str, owner_id: UUID) -> None:
    """Create an organization with its first owner."""
    with administration() as session:
        made = domain.create_organization(session, by=OPERATOR, name=name, owner_id=owner_id)
    show(made)


@organizations.command("list")
@paged
def list_organizations(cursor: str | None, limit: int) -> None:
    """List all organizations."""
    with administration() as session:
        page = domain.list_organizations(session, by=OPERATOR, cursor=cursor, limit=limit)
    show_page("organizations", page)


@organizations.command("rename")
@click.argument("organization_id", type=click.UUID, metavar="ID")
@click.option("--name", required=True)
def rename_organization(organization_id: UUID, name: str) -> None:
    """Update an organization's name."""
    with administration() as session:
        changed = domain.rename_organization(session, by=OPERATOR, organization_id=organization_id, name=name)
    show(changed)


acts_on(
    organizations,
    "organization",
    {
        "show": domain.get_organization,
        "suspend": domain.suspend_organization,
        "resume": domain.resume_organization,
    },
)


@click.group()
def members() -> None:
    """Manage the members of an organization."""


@members.command("add")
@_organization
@click.option("--email", required=True)
@_role
def add_member(organization_id: UUID, email: str, role: str) -> None:
    """Add a member by their address, without an invitation."""
    with administration() as session:
        made = memberships.add_member(
            session, by=OPERATOR, organization_id=organization_id, email=email, role=Role(role)
        )
    show(made)


@members.command("list")
@_organization
@paged
def list_members(organization_id: UUID, cursor: str | None, limit: int) -> None:
    """List the members of an organization."""
    with administration() as session:
        page = memberships.list_members(
            session, by=OPERATOR, organization_id=organization_id, cursor=cursor, limit=limit
        )
    show_page("members", page)


@members.command("change-role")
@_organization
@_user
@_role
def change_member_role(organization_id: UUID, user_id: UUID, role: str) -> None:
    """Update a member's role."""
    with administration() as session:
        changed = memberships.change_member_role(
            session, by=OPERATOR, organization_id=organization_id, user_id=user_id, role=Role(role)
        )
    show(changed)


@members.command("remove")
@_organization
@_user
def remove_member(organization_id: UUID, user_id: UUID) -> None:
    """Remove a member."""
    with administration() as session:
        memberships.remove_member(session, by=OPERATOR, organization_id=organization_id, user_id=user_id)


@click.group()
def invitations() -> None:
    """Manage the invitations to an organization."""


@invitations.command("create")
@_organization
@click.option("--email", help="The address to invite, or give --user.")
@click.option("--user", "user_id", type=click.UUID, help="The user to invite, or give --email.")
@_role
@click.option("--expires-at", type=INSTANT, help="For example 2030-01-31T12:00:00Z; in a week by default.")
def create_invitation(
    organization_id: UUID, email: str | None, user_id: UUID | None, role: str, expires_at: datetime | None
) -> None:
    """Create an invitation; the token is shown only now."""
    with administration() as session:
        issued = asked.invite_member(
            session,
            by=OPERATOR,
            organization_id=organization_id,
            email=email,
            user_id=user_id,
            role=Role(role),
            expires_at=in_utc(expires_at),
        )
    show(issued.invitation, token=issued.token.value)


@invitations.command("list")
@_organization
@paged
def list_invitations(organization_id: UUID, cursor: str | None, limit: int) -> None:
    """List an organization's invitations, newest first."""
    with administration() as session:
        page = asked.list_invitations(
            session, by=OPERATOR, organization_id=organization_id, cursor=cursor, limit=limit
        )
    show_page("invitations", page)


acts_on(invitations, "invitation", {"show": asked.get_invitation, "revoke": asked.revoke_invitation})


@click.group()
def users() -> None:
    """Manage users."""


@users.command("create")
@click.option("--email", required=True)
@click.option("--operator", "is_operator", is_flag=True, help="Let them operate the installation.")
def create_user(email: str, *, is_operator: bool) -> None:
    """Create a user who belongs to no organization yet."""
    create = people.create_operator if is_operator else people.create_user
    with administration() as session:
        made = create(session, by=OPERATOR, email=email)
    show(made)


@users.command("list")
@paged
def list_users(cursor: str | None, limit: int) -> None:
    """List all users."""
    with administration() as session:
        page = people.list_users(session, by=OPERATOR, cursor=cursor, limit=limit)
    show_page("users", page)


acts_on(
    users,
    "user",
    {"show": people.get_user, "disable": people.disable_user, "enable": people.enable_user},
)


@click.group("api-keys")
def api_keys() -> None:
    """Manage users' API keys."""


@api_keys.command("issue")
@_user
@click.option("--name", required=True)
@click.option("--organization", "organization_id", type=click.UUID, help="Bind the key to it.")
@click.option("--expires-at", type=INSTANT, help="For example 2030-01-31T12:00:00Z.")
def issue_api_key(
    user_id: UUID, name: str, organization_id: UUID | None, expires_at: datetime | None
) -> None:
    """Create an API key; the secret is shown only now."""
    with administration() as session:
        issued = keys.issue_api_key(
            session,
            by=OPERATOR,
            user_id=user_id,
            organization_id=organization_id,
            name=name,
            expires_at=in_utc(expires_at),
        )
    show(issued.key, api_key=issued.secret.value)


@api_keys.command("list")
@_user
@paged
def list_api_keys(user_id: UUID, cursor: str | None, limit: int) -> None:
    """List a user's keys."""
    with administration() as session:
        page = keys.list_api_keys(session, by=OPERATOR, user_id=user_id, cursor=cursor, limit=limit)
    show_page("apiKeys", page)


@api_keys.command("list-bound")
@_organization
@paged
def list_organization_api_keys(organization_id: UUID, cursor: str | None, limit: int) -> None:
    """List the keys that are bound to an organization."""
    with administration() as session:
        page = keys.list_organization_api_keys(
            session, by=OPERATOR, organization_id=organization_id, cursor=cursor, limit=limit
        )
    show_page("apiKeys", page)


acts_on(api_keys, "key", {"show": keys.get_api_key, "revoke": keys.revoke_api_key})


@click.group("audit-events")
def audit_events() -> None:
    """List audit events."""


@audit_events.command("list")
@_organization
@paged
def list_audit_events(organization_id: UUID, cursor: str | None, limit: int) -> None:
    """List an organization's audit events, newest first."""
    with administration() as session:
        page = audit.list_audit_events(
            session, by=OPERATOR, organization_id=organization_id, cursor=cursor, limit=limit
        )
    show_page("auditEvents", page)
