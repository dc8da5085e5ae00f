"""Users: people, who act in one organization at a time with the rights of their membership there.

Operators make and disable users; a person invited by address makes their own (`invitation_acceptance.py`).
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
    """A person. `active_organization_id` is where keys that are bound to no organization act."""

    id: UUID
    email: str
    is_operator: bool
    active_organization_id: UUID | None
    disabled_at: datetime | None
    created_at: datetime


def create_user(session: Session, *, actor: Actor, email: str) -> User:
    """Create a user who belongs to no organization yet; raise AlreadyExists for a known address."""
    authorize_operation(actor)
    user = insert_user(session, email, is_operator=False)
    _record(session, actor, "user.created", user.id)
    return user


def create_operator(session: Session, *, actor: Actor, email: str) -> User:
    """Create a user who operates the installation: one who may administer every organization."""
    authorize_operation(actor)
    user = insert_user(session, email, is_operator=True)
    _record(session, actor, "user.operator_created", user.id)
    return user


def get_user(session: Session, *, actor: Actor, user_id: UUID) -> User:
    """Get a user: oneself, or, for an operator, anyone."""
    authorize_own_or_operator(actor, user_id)
    return get_one(session, select(users).where(users.c.id == user_id), _user)


def list_users(session: Session, *, actor: Actor, **page: Unpack[Position]) -> Page[User]:
    """List every user of the installation, for its operators."""
    authorize_operation(actor)
    return paginate(session, select(users), ascending(users.c.id), _user, **page)


def select_active_organization(session: Session, *, actor: Actor, organization_id: UUID) -> User:
    """Make an organization the one a user's unbound keys act in; raise ResourceNotFound unless they are a member."""
    user_id = actor.user_id
    if user_id is None or actor.caller.bound_organization_id is not None:
        raise PermissionDenied("Only a user's key that is bound to no organization can select one.")
    # The membership is kept until this is committed: who ends it afterwards finds the organization selected.
    belongs = select(memberships.c.user_id).where(
        memberships.c.user_id == user_id, memberships.c.organization_id == organization_id
    )
    if session.execute(belongs.with_for_update(read=True)).one_or_none() is None:
        raise ResourceNotFound
    if set_values(session, users, user_id, {"active_organization_id": organization_id}):
        _record(session, actor, "user.organization_selected", user_id, selected=organization_id)
    return _user(session.execute(select(users).where(users.c.id == user_id)).one())


def disable_user(session: Session, *, actor: Actor, user_id: UUID) -> User:
    """Disable a user, and with them all their keys: the last owner of an organization too.

    A stranger who has taken an account over must not keep it for as long as nobody else owns the organization.
    """
    authorize_operation(actor)
    if mark_disabled(session, users, users.c.disabled_at, user_id):
        _record(session, actor, "user.disabled", user_id)
    return get_user(session, actor=actor, user_id=user_id)


def enable_user(session: Session, *, actor: Actor, user_id: UUID) -> User:
    """Enable a disabled user, with the keys that are left; sessions and links from before stay over.

    They are ended here and not with the user: one that was beginning just then would come back to life.
    """
    authorize_operation(actor)
    if mark_enabled(session, users, users.c.disabled_at, user_id):
        end_sessions(session, user_id)
        _record(session, actor, "user.enabled", user_id)
    return get_user(session, actor=actor, user_id=user_id)


def find_user(session: Session, email: str) -> UUID | None:
    """Find the user of an address, whatever its case."""
    known = select(users.c.id).where(email_matches(require_email(email)))
    found: UUID | None = session.execute(known).scalar()
    return found


def find_or_insert_user(session: Session, email: str) -> UUID:
    """Give the user of an address, made if need be; two who add the same new address get the same user."""
    found = find_user(session, email)
    if found is not None:
        return found
    session.execute(_insertion(email, is_operator=False))
    # Read again instead of using the inserted id: a concurrent request may have inserted the user first.
    created: UUID = session.execute(select(users.c.id).where(email_matches(email))).scalar_one()
    return created


def insert_user(session: Session, email: str, *, is_operator: bool) -> User:
    """Write a user; authorization is the caller's. Raise AlreadyExists for a known address."""
    row = session.execute(_insertion(require_email(email), is_operator=is_operator)).one_or_none()
    if row is None:
        raise AlreadyExists("There is a user with this address already.")
    return _user(row)


def _insertion(email: str, *, is_operator: bool) -> Any:
    values = {"id": new_id(), "email": email, "is_operator": is_operator}
    return insert(users).values(values).on_conflict_do_nothing().returning(users)


def _record(session: Session, actor: Actor, action: str, user_id: UUID, **details: Any) -> None:
    record(session, actor, action, user_id, **details)


def _user(row: Row[Any]) -> User:
    return User(**row._asdict())
