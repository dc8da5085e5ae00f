"""Accept an invitation as a user with an account, or by registering a new account.

An invitation can be accepted once, and only while its author could still grant the invitation's role.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Row, func, select, update

from shared.db.database import Session
from shared.errors import PermissionDenied
from shared.identity.access.authorization import Actor
from shared.identity.access.callers import Caller, Executor, ExecutorKind
from shared.identity.access.permissions import Permission
from shared.identity.access.roles import ROLE_PERMISSIONS, Role, can_grant
from shared.identity.ascii_case import fold_ascii
from shared.identity.audit import record
from shared.identity.credentials.api_keys import FIRST_KEY_NAME, IssuedApiKey, issue_api_key
from shared.identity.directory.memberships import Membership, get_membership, insert_membership
from shared.identity.directory.users import User, find_user, insert_user
from shared.identity.errors import AlreadyExists, InvitationEnded, OrganizationSuspended, ResourceNotFound
from shared.identity.secrets import Prefix, hash_secret, is_well_formed
from shared.identity.tables import invitations, memberships, organizations, users


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A new account that was created for an invitation, with the account's membership and first key."""

    membership: Membership
    key: IssuedApiKey


def accept_invitation(session: Session, *, actor: Actor, token: str) -> Membership:
    """Make the acting user a member if the invitation names this user or the user's address.

    Raises PermissionDenied for a bound key, ResourceNotFound, InvitationEnded, OrganizationSuspended, and AlreadyExists
    for a member.
    """
    user_id = actor.user_id
    if user_id is None or actor.caller.bound_organization_id is not None:
        raise PermissionDenied(
            "Accept the invitation with your own API key that is bound to no organization."
        )
    invitation = _lock_open(session, token)
    # The token alone is not enough: it may have been forwarded.
    email = session.execute(select(users.c.email).where(users.c.id == user_id)).scalar_one()
    if invitation.user_id != user_id and fold_ascii(invitation.email or "") != fold_ascii(email):
        raise ResourceNotFound("There is no such invitation for you.")
    return _join(session, actor, invitation, user_id)


def register_invited(session: Session, *, token: str, request_id: str | None) -> Registration:
    """Create an account for an invited address, with the membership and a first API key.

    Raises AlreadyExists if the address has an account, ResourceNotFound, InvitationEnded, OrganizationSuspended.
    """
    invitation = _lock_open(session, token)
    # Refuse an address with an account: its user must accept with a key, because another person may hold the token.
    if invitation.email is None or find_user(session, invitation.email) is not None:
        raise AlreadyExists(
            "The invited address already has an account. Accept the invitation with an API key of that account."
        )
    user = insert_user(session, invitation.email, is_operator=False)
    actor = _newcomer(user, request_id)
    record(session, actor, "user.registered", user.id)
    membership = _join(session, actor, invitation, user.id)
    key = issue_api_key(session, actor=actor, user_id=user.id, organization_id=None, name=FIRST_KEY_NAME)
    return Registration(membership=membership, key=key)


def _lock_open(session: Session, token: str) -> Row[Any]:
    """Return the open invitation of a token. Lock the invitation, so that it can be accepted only once.

    Raises ResourceNotFound, InvitationEnded, OrganizationSuspended.
    """
    if not is_well_formed(token, Prefix.INVITATION):
        raise ResourceNotFound("There is no such invitation.")
    is_over = (
        invitations.c.accepted_at.is_not(None)
        | invitations.c.revoked_at.is_not(None)
        # Use `clock_timestamp()`: `now()` is the start of the transaction, and this statement may have waited for a
        # lock.
        | (invitations.c.expires_at <= func.clock_timestamp())
    )
    statement = (
        select(invitations, is_over.label("is_over"), organizations.c.suspended_at)
        .join(organizations, organizations.c.id == invitations.c.organization_id)
        .where(invitations.c.token_hash == hash_secret(token))
    )
    row = session.execute(statement.with_for_update(of=invitations)).one_or_none()
    if row is None:
        raise ResourceNotFound("There is no such invitation.")
    if row.is_over or not _may_still_invite(session, row):
        raise InvitationEnded
    if row.suspended_at is not None:
        raise OrganizationSuspended
    return row


def _may_still_invite(session: Session, invitation: Row[Any]) -> bool:
    """Return whether the author could still create this invitation."""
    # Invitations by operators have no author and stay valid.
    if invitation.invited_by is None:
        return True
    role = session.execute(
        select(memberships.c.role)
        .join(users, users.c.id == memberships.c.user_id)
        .where(
            memberships.c.organization_id == invitation.organization_id,
            memberships.c.user_id == invitation.invited_by,
            users.c.disabled_at.is_(None),
        )
    ).scalar()
    held = ROLE_PERMISSIONS[Role(role)] if role is not None else frozenset()
    return Permission.MEMBER_MANAGE in held and can_grant(held, Role(invitation.role))


def _join(session: Session, actor: Actor, invitation: Row[Any], user_id: UUID) -> Membership:
    role = Role(invitation.role)
    insert_membership(session, organization_id=invitation.organization_id, user_id=user_id, role=role)
    session.execute(
        update(invitations)
        .where(invitations.c.id == invitation.id)
        .values(accepted_at=func.now(), accepted_by=user_id)
    )
    record(
        session,
        actor,
        "invitation.accepted",
        invitation.id,
        organization_id=invitation.organization_id,
        user_id=user_id,
        role=role,
    )
    return get_membership(session, invitation.organization_id, user_id)


def _newcomer(user: User, request_id: str | None) -> Actor:
    """Return an actor for the audit events of a registration: the new user."""
    caller = Caller(
        executor=Executor(kind=ExecutorKind.USER, id=user.id),
        credential_id=user.id,
        organization_id=None,
        owner=None,
        payer_id=None,
    )
    return Actor(caller=caller, request_id=request_id)
