"""Create, list and revoke invitations to an organization; `invitation_acceptance.py` accepts them.

An invitation names an e-mail address or a user, a role and an expiry. Its token is shown once. The author must
deliver the token, because the service sends no mail.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Unpack
from uuid import UUID

from sqlalchemy import Row, func, insert, select

from shared.db.database import Session
from shared.errors import invalid_field
from shared.identity.access.authorization import Actor, authorize_administration
from shared.identity.access.permissions import Permission
from shared.identity.access.roles import Role
from shared.identity.audit import record
from shared.identity.conditional_updates import mark_disabled
from shared.identity.directory.memberships import authorize_role
from shared.identity.email_addresses import email_matches
from shared.identity.errors import AlreadyExists, ResourceNotFound, TooManyLive
from shared.identity.field_validation import require_email, require_future
from shared.identity.secrets import Prefix, Secret, issue
from shared.identity.tables import invitations, memberships, organizations, users
from shared.ids import new_id
from shared.pagination import Page, Position, descending, paginate

OPEN_LIMIT = 100
"""The highest number of open invitations of an organization."""
DEFAULT_DAYS, MAX_DAYS = 7, 30
"""The default and the longest validity of an invitation, in days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """An invitation without its token; either `email` or `user_id` is set."""

    id: UUID
    organization_id: UUID
    email: str | None
    user_id: UUID | None
    role: Role
    last4: str
    expires_at: datetime
    accepted_at: datetime | None
    accepted_by: UUID | None
    revoked_at: datetime | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedInvitation:
    """A new invitation with its token, which is shown only once."""

    invitation: Invitation
    token: Secret


def invite_member(
    session: Session,
    *,
    actor: Actor,
    organization_id: UUID,
    role: Role,
    email: str | None = None,
    user_id: UUID | None = None,
    expires_at: datetime | None = None,
) -> IssuedInvitation:
    """Create an invitation for an e-mail address or a user.

    Without `expires_at` the invitation is valid for DEFAULT_DAYS. An expiry after MAX_DAYS is reduced to MAX_DAYS.
    Raises PermissionDenied, GrantExceedsGranter, ValidationFailed, ResourceNotFound, AlreadyExists for a member,
    and TooManyLive if OPEN_LIMIT invitations are open.
    """
    authorize_administration(actor, Permission.MEMBER_MANAGE, organization_id)
    authorize_role(actor, role, organization_id)
    require_future(session, expires_at)
    _check_invitee(session, organization_id, email, user_id)
    _require_room(session, organization_id)
    token = issue(Prefix.INVITATION)
    row = session.execute(
        insert(invitations)
        .values(
            id=new_id(),
            organization_id=organization_id,
            email=email,
            user_id=user_id,
            role=role,
            # Store null for operators: their right to invite does not depend on a membership that could end.
            invited_by=None if actor.caller.is_operator else actor.user_id,
            token_hash=token.hash,
            last4=token.last4,
            expires_at=_end(expires_at),
        )
        .returning(invitations)
    ).one()
    invitation = _invitation(row)
    _record(session, actor, "invitation.created", invitation, role=role, email=email, user_id=user_id)
    return IssuedInvitation(invitation=invitation, token=token)


def get_invitation(session: Session, *, actor: Actor, invitation_id: UUID) -> Invitation:
    """Return an invitation, if the actor manages the members of its organization."""
    row = session.execute(select(invitations).where(invitations.c.id == invitation_id)).one_or_none()
    if row is None:
        raise ResourceNotFound
    authorize_administration(actor, Permission.MEMBER_MANAGE, row.organization_id)
    return _invitation(row)


def list_invitations(
    session: Session, *, actor: Actor, organization_id: UUID, **page: Unpack[Position]
) -> Page[Invitation]:
    """Return a page of an organization's invitations, newest first, including invitations that have ended."""
    authorize_administration(actor, Permission.MEMBER_MANAGE, organization_id)
    statement = select(invitations).where(invitations.c.organization_id == organization_id)
    return paginate(session, statement, descending(invitations.c.id), _invitation, **page)


def revoke_invitation(session: Session, *, actor: Actor, invitation_id: UUID) -> Invitation:
    """Revoke an invitation. An accepted invitation is returned unchanged; remove the member instead."""
    invitation = get_invitation(session, actor=actor, invitation_id=invitation_id)
    # Skip an accepted invitation: a revocation would not end the membership.
    if invitation.accepted_at is None and mark_disabled(
        session, invitations, invitations.c.revoked_at, invitation_id
    ):
        _record(session, actor, "invitation.revoked", invitation)
    return get_invitation(session, actor=actor, invitation_id=invitation_id)


def _check_invitee(session: Session, organization_id: UUID, email: str | None, user_id: UUID | None) -> None:
    """Check that the request names either an address or an existing user, and that this user is not a member.

    For the address of a non-member, the result does not reveal whether the address has an account.
    """
    if (email is None) == (user_id is None):
        raise invalid_field("email", "or userId, one of them")
    if email is not None:
        is_named = email_matches(require_email(email))
    else:
        is_named = users.c.id == user_id
        if session.execute(select(users.c.id).where(is_named)).one_or_none() is None:
            raise ResourceNotFound("There is no such user.")
    member = (
        select(memberships.c.user_id)
        .join(users, users.c.id == memberships.c.user_id)
        .where(memberships.c.organization_id == organization_id, is_named)
    )
    if session.execute(member).one_or_none() is not None:
        raise AlreadyExists("This user is a member already.")


def _require_room(session: Session, organization_id: UUID) -> None:
    """Check that the organization exists and has fewer than OPEN_LIMIT open invitations."""
    # Lock the organization, so that of two concurrent requests only one can create the last invitation below the
    # limit.
    locked = select(organizations.c.id).where(organizations.c.id == organization_id).with_for_update()
    if session.execute(locked).one_or_none() is None:
        raise ResourceNotFound
    still_open = select(func.count()).where(
        invitations.c.organization_id == organization_id,
        invitations.c.accepted_at.is_(None),
        invitations.c.revoked_at.is_(None),
        invitations.c.expires_at > func.now(),
    )
    if session.execute(still_open).scalar_one() >= OPEN_LIMIT:
        raise TooManyLive(
            f"The organization has reached its limit of {OPEN_LIMIT} open invitations. Revoke one first."
        )


def _end(expires_at: datetime | None) -> Any:
    if expires_at is None:
        return func.now() + func.make_interval(0, 0, 0, DEFAULT_DAYS)
    # Reduce a later expiry instead of refusing it, so that clients need not know the limit.
    return func.least(expires_at, func.now() + func.make_interval(0, 0, 0, MAX_DAYS))


def _record(session: Session, actor: Actor, action: str, invitation: Invitation, **details: Any) -> None:
    record(session, actor, action, invitation.id, organization_id=invitation.organization_id, **details)


def _invitation(row: Row[Any]) -> Invitation:
    values = row._asdict()
    shown = {name: values[name] for name in Invitation.__dataclass_fields__}
    return Invitation(**{**shown, "role": Role(row.role)})
