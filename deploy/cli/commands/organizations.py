"""Commands for organizations, members, invitations, users, API keys and the audit log."""

from datetime import datetime
from uuid import UUID

import click

from deploy.cli.command_context import (
    INSTANT,
    add_actions,
    add_list,
    administration,
    choice,
    in_utc,
    organization_option,
    required_id,
    show,
)
from shared.identity import audit
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import MEMBERSHIP_ROLES, Role
from shared.identity.credentials import api_keys as keys
from shared.identity.directory import invitations as domain_invitations
from shared.identity.directory import memberships
from shared.identity.directory import organizations as domain
from shared.identity.directory import users as people

_user = required_id("user")
_role = click.option("--role", type=choice(MEMBERSHIP_ROLES), required=True, help="Role of the member.")


organizations = click.Group("organizations", help="Manage organizations.")


@organizations.command("create", help="Create an organization with its first owner.")
@click.option("--name", required=True, help="Display name.")
@click.option(
    "--owner", "owner_id", type=click.UUID, required=True, help="Id of the user who becomes its owner."
)
def create_organization(name: str, owner_id: UUID) -> None:
    with administration() as session:
        made = domain.create_organization(session, actor=OPERATOR, name=name, owner_id=owner_id)
    show(made)


add_list(organizations, domain.list_organizations, "List all organizations.")


@organizations.command("rename", help="Update an organization's name.")
@click.argument("organization_id", type=click.UUID, metavar="ID")
@click.option("--name", required=True, help="Display name.")
def rename_organization(organization_id: UUID, name: str) -> None:
    with administration() as session:
        changed = domain.rename_organization(
            session, actor=OPERATOR, organization_id=organization_id, name=name
        )
    show(changed)


add_actions(
    organizations,
    "organization",
    show=(domain.get_organization, "Get an organization."),
    suspend=(
        domain.suspend_organization,
        "Suspend an organization: all requests and jobs with its permissions or credits are rejected.",
    ),
    resume=(domain.resume_organization, "Resume a suspended organization."),
)


members = click.Group("members", help="Manage the members of an organization.")


@members.command("add", help="Add a user to an organization by email address, without an invitation.")
@organization_option
@click.option("--email", required=True, help="Email address of the user.")
@_role
def add_member(organization_id: UUID, email: str, role: str) -> None:
    with administration() as session:
        made = memberships.add_member(
            session, actor=OPERATOR, organization_id=organization_id, email=email, role=Role(role)
        )
    show(made)


add_list(members, memberships.list_members, "List the members of an organization.", of="organization")


@members.command("change-role", help="Update a member's role.")
@organization_option
@_user
@_role
def change_member_role(organization_id: UUID, user_id: UUID, role: str) -> None:
    with administration() as session:
        changed = memberships.change_member_role(
            session, actor=OPERATOR, organization_id=organization_id, user_id=user_id, role=Role(role)
        )
    show(changed)


@members.command("remove", help="Remove a member from an organization.")
@organization_option
@_user
def remove_member(organization_id: UUID, user_id: UUID) -> None:
    with administration() as session:
        memberships.remove_member(session, actor=OPERATOR, organization_id=organization_id, user_id=user_id)


invitations = click.Group("invitations", help="Manage the invitations to an organization.")


@invitations.command("create", help="Create an invitation; its token is shown only once.")
@organization_option
@click.option("--email", help="Email address to invite; alternative to --user.")
@click.option("--user", "user_id", type=click.UUID, help="Id of the user to invite; alternative to --email.")
@_role
@click.option(
    "--expires-at",
    type=INSTANT,
    help="Expiry in UTC, for example 2030-01-31T12:00:00Z; in a week by default.",
)
def create_invitation(
    organization_id: UUID, email: str | None, user_id: UUID | None, role: str, expires_at: datetime | None
) -> None:
    with administration() as session:
        issued = domain_invitations.invite_member(
            session,
            actor=OPERATOR,
            organization_id=organization_id,
            email=email,
            user_id=user_id,
            role=Role(role),
            expires_at=in_utc(expires_at),
        )
    show(issued.invitation, token=issued.token.value)


add_list(
    invitations,
    domain_invitations.list_invitations,
    "List an organization's invitations, newest first.",
    of="organization",
)
add_actions(
    invitations,
    "invitation",
    show=(domain_invitations.get_invitation, "Get an invitation, without its token."),
    revoke=(domain_invitations.revoke_invitation, "Revoke an invitation that was not accepted yet."),
)


users = click.Group("users", help="Manage users.")


@users.command("create", help="Create a user, who is not yet a member of any organization.")
@click.option("--email", required=True, help="Email address of the user.")
@click.option(
    "--operator", "is_operator", is_flag=True, help="Make the user an operator of the installation."
)
def create_user(email: str, *, is_operator: bool) -> None:
    # Choose between two functions, because each function records a different audit event.
    create = people.create_operator if is_operator else people.create_user
    with administration() as session:
        made = create(session, actor=OPERATOR, email=email)
    show(made)


add_list(users, people.list_users, "List all users.")
add_actions(
    users,
    "user",
    show=(people.get_user, "Get a user: yourself or, as an operator, any user."),
    disable=(people.disable_user, "Disable a user and all their API keys."),
    enable=(people.enable_user, "Enable a disabled user and their API keys that are not revoked."),
)


api_keys = click.Group("api-keys", help="Manage users' API keys.")


@api_keys.command("issue", help="Create an API key; its secret is shown only once.")
@_user
@click.option("--name", required=True, help="Display name.")
@click.option(
    "--organization",
    "organization_id",
    type=click.UUID,
    help="Restrict the key to this organization; all by default.",
)
@click.option(
    "--expires-at", type=INSTANT, help="Expiry in UTC, for example 2030-01-31T12:00:00Z; none by default."
)
def issue_api_key(
    user_id: UUID, name: str, organization_id: UUID | None, expires_at: datetime | None
) -> None:
    with administration() as session:
        issued = keys.issue_api_key(
            session,
            actor=OPERATOR,
            user_id=user_id,
            organization_id=organization_id,
            name=name,
            expires_at=in_utc(expires_at),
        )
    show(issued.key, api_key=issued.secret.value)


add_list(api_keys, keys.list_api_keys, "List a user's API keys.", of="user")
add_list(
    api_keys,
    keys.list_organization_api_keys,
    "List the API keys that are restricted to an organization.",
    of="organization",
    name="list-bound",
)
add_actions(
    api_keys,
    "key",
    show=(keys.get_api_key, "Get an API key, without its secret."),
    revoke=(keys.revoke_api_key, "Revoke an API key."),
)


audit_events = click.Group("audit-events", help="List audit events.")
add_list(
    audit_events,
    audit.list_audit_events,
    "List an organization's audit events, newest first.",
    of="organization",
)
