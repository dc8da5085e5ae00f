"""User accounts. A user acts in one organization at a time, with the rights of the membership there.

Operators create and disable users. An invited person creates their own account (`invitation_acceptance.py`).
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Unpack
from uuid import UUID

from sqlalchemy import Row, select
from sqlalchemy.dialects.postgresql import insert

from shared.db.database import Session
from shared.errors import PermissionDenied
from shared.identity.access.authorization import Actor, authorize_operation, authorize_own_or_operator
from shared.identity.audit import record
from shared.identity.conditional_updates import mark_disabled, mark_enabled, set_values
from shared.identity.email_addresses import email_matches
from shared.identity.errors import AlreadyExists, ResourceNotFound
from shared.identity.field_validation import require_email
from shared.identity.lookups import get_one
from shared.identity.sign_in.console_sessions import end_sessions
from shared.identity.tables import memberships, users
from shared.ids import new_id
from shared.pagination import Page, Position, ascending, paginate


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user account. The user's unbound keys act in `active_organization_id`."""

    id: UUID
    email: str
    is_operator: bool
    active_organization_id: UUID | None
    disabled_at: datetime | None
    created_at: datetime


def create_user(session: Session, *, actor: Actor, email: str) -> User:
    """Create a user without a membership, for an operator. Raises AlreadyExists if a user has this address."""
    authorize_operation(actor)
    user = insert_user(session, email, is_operator=False)
    _record(session, actor, "user.created", user.id)
    return user


def create_operator(session: Session, *, actor: Actor, email: str) -> User:
    """Create a user who is an operator and may administer every organization. Raises AlreadyExists."""
    authorize_operation(actor)
    user = insert_user(session, email, is_operator=True)
    _record(session, actor, "user.operator_created", user.id)
    return user


def get_user(session: Session, *, actor: Actor, user_id: UUID) -> User:
    """Return a user, for that user or an operator. Raises ResourceNotFound."""
    authorize_own_or_operator(actor, user_id)
    return get_one(session, select(users).where(users.c.id == user_id), _user)


def list_users(session: Session, *, actor: Actor, **page: Unpack[Position]) -> Page[User]:
    """Return a page of all users of the installation, oldest first, for an operator."""
    authorize_operation(actor)
    return paginate(session, select(users), ascending(users.c.id), _user, **page)


def select_active_organization(session: Session, *, actor: Actor, organization_id: UUID) -> User:
    """Select the organization that the user's unbound keys act in.

    Raises PermissionDenied for a bound key, and ResourceNotFound unless the user is a member.
    """
    user_id = actor.user_id
    if user_id is None or actor.caller.bound_organization_id is not None:
        raise PermissionDenied("Only a user's API key that is bound to no organization can select one.")
    # Lock the membership: a concurrent removal then waits until the commit, and finds and clears this selection.
    belongs = select(memberships.c.user_id).where(
        memberships.c.user_id == user_id, memberships.c.organization_id == organization_id
    )
    if session.execute(belongs.with_for_update(read=True)).one_or_none() is None:
        raise ResourceNotFound
    if set_values(session, users, user_id, {"active_organization_id": organization_id}):
        _record(session, actor, "user.organization_selected", user_id, selected=organization_id)
    return _user(session.execute(select(users).where(users.c.id == user_id)).one())


def disable_user(session: Session, *, actor: Actor, user_id: UUID) -> User:
    """Disable a user, for an operator. All keys and sessions of the user are then refused."""
    authorize_operation(actor)
    # Disable even the last owner of an organization: a compromised account must be stopped immediately.
    if mark_disabled(session, users, users.c.disabled_at, user_id):
        _record(session, actor, "user.disabled", user_id)
    return get_user(session, actor=actor, user_id=user_id)


def enable_user(session: Session, *, actor: Actor, user_id: UUID) -> User:
    """Enable a disabled user. Keys that were not revoked become valid again; earlier sessions and links are revoked."""
    authorize_operation(actor)
    if mark_enabled(session, users, users.c.disabled_at, user_id):
        # Revoke sessions here and not when the user is disabled: a revocation then would miss a concurrent sign-in.
        end_sessions(session, user_id)
        _record(session, actor, "user.enabled", user_id)
    return get_user(session, actor=actor, user_id=user_id)


def find_user(session: Session, email: str) -> UUID | None:
    """Return the id of the user with an address, ignoring ASCII case, or None. Raises ValidationFailed."""
    known = select(users.c.id).where(email_matches(require_email(email)))
    found: UUID | None = session.execute(known).scalar()
    return found


def find_or_insert_user(session: Session, email: str) -> UUID:
    """Return the id of the user with an address. If no user has it, create one. Raises ValidationFailed."""
    found = find_user(session, email)
    if found is not None:
        return found
    session.execute(_insertion(email, is_operator=False))
    # Read the id again instead of using the inserted one: a concurrent request may have inserted the user first.
    created: UUID = session.execute(select(users.c.id).where(email_matches(email))).scalar_one()
    return created


def insert_user(session: Session, email: str, *, is_operator: bool) -> User:
    """Insert a user. The caller authorizes. Raises ValidationFailed, and AlreadyExists if a user has this address."""
    row = session.execute(_insertion(require_email(email), is_operator=is_operator)).one_or_none()
    if row is None:
        raise AlreadyExists("A user with this e-mail address already exists.")
    return _user(row)


def _insertion(email: str, *, is_operator: bool) -> Any:
    values = {"id": new_id(), "email": email, "is_operator": is_operator}
    return insert(users).values(values).on_conflict_do_nothing().returning(users)


def _record(session: Session, actor: Actor, action: str, user_id: UUID, **details: Any) -> None:
    record(session, actor, action, user_id, **details)


def _user(row: Row[Any]) -> User:
    return User(**row._asdict())
