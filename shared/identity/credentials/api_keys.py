"""Personal API keys. A key acts as its user, in the organization of its binding or in the one that the user selected.

Users issue their own keys; only operators issue keys for others. A bound key issues only keys with the same binding.
Administrators list and revoke the keys that are bound to their organization.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Unpack
from uuid import UUID

from sqlalchemy import Row, func, insert, select

from shared.db.database import Session
from shared.db.schema import columns_of
from shared.errors import PermissionDenied
from shared.identity.access.authorization import Actor, authorize_administration, authorize_own_or_operator
from shared.identity.access.permissions import Permission
from shared.identity.audit import record
from shared.identity.authentication.credential_statements import is_live
from shared.identity.conditional_updates import mark_disabled
from shared.identity.errors import ResourceNotFound, TooManyLive
from shared.identity.field_validation import require_future, require_name
from shared.identity.lookups import get_one, require_member
from shared.identity.secrets import ListedSecret, Prefix, Secret, issue
from shared.identity.tables import api_keys, users
from shared.ids import new_id
from shared.pagination import Page, Position, ascending, paginate

LIVE_LIMIT = 100
"""Live keys of a user in one organization. Counted for each, so that one organization cannot use up another's."""
FIRST_KEY_NAME = "First key"
"""The name of the key that comes with a new account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey(ListedSecret):
    """A key without its secret. If `organization_id` is None, the key acts in the user's selected organization."""

    id: UUID
    user_id: UUID
    organization_id: UUID | None
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedApiKey:
    """A new key with its secret, which is shown only once."""

    key: ApiKey
    secret: Secret


def issue_api_key(
    session: Session,
    *,
    actor: Actor,
    user_id: UUID,
    organization_id: UUID | None,
    name: str,
    expires_at: datetime | None = None,
) -> IssuedApiKey:
    """Issue a key, bound to an organization if one is given.

    Raises PermissionDenied, ResourceNotFound, ValidationFailed, and TooManyLive if the user already has LIVE_LIMIT
    live keys with the same binding.
    """
    _authorize_issue(session, actor, user_id, organization_id)
    require_future(session, expires_at)
    _require_room(session, user_id, organization_id)
    secret = issue(Prefix.API_KEY)
    key_id = new_id()
    session.execute(
        insert(api_keys).values(
            id=key_id,
            user_id=user_id,
            organization_id=organization_id,
            name=require_name(name),
            hash=secret.hash,
            last4=secret.last4,
            expires_at=expires_at,
        )
    )
    key = _get(session, key_id)
    _record(session, actor, "api_key.issued", key)
    return IssuedApiKey(key=key, secret=secret)


def get_api_key(session: Session, *, actor: Actor, key_id: UUID) -> ApiKey:
    """Return a key of the actor, or one bound to an organization in which the actor manages credentials."""
    key = _get(session, key_id)
    _authorize_access(actor, key)
    return key


def list_api_keys(session: Session, *, actor: Actor, user_id: UUID, **page: Unpack[Position]) -> Page[ApiKey]:
    """Return a page of a user's keys, for that user or an operator. A bound key lists only keys with equal binding."""
    authorize_own_or_operator(actor, user_id)
    statement = _KEYS.where(api_keys.c.user_id == user_id)
    if actor.caller.bound_organization_id is not None:
        statement = statement.where(api_keys.c.organization_id == actor.caller.bound_organization_id)
    return paginate(session, statement, ascending(api_keys.c.id), _key, **page)


def list_organization_api_keys(
    session: Session, *, actor: Actor, organization_id: UUID, **page: Unpack[Position]
) -> Page[ApiKey]:
    """Return a page of the keys of all users that are bound to an organization."""
    authorize_administration(actor, Permission.CREDENTIAL_MANAGE, organization_id)
    statement = _KEYS.where(api_keys.c.organization_id == organization_id)
    return paginate(session, statement, ascending(api_keys.c.id), _key, **page)


def revoke_api_key(session: Session, *, actor: Actor, key_id: UUID) -> ApiKey:
    """Revoke a key of the actor, or one bound to an organization in which the actor manages credentials."""
    key = _get(session, key_id)
    _authorize_access(actor, key)
    if mark_disabled(session, api_keys, api_keys.c.revoked_at, key_id):
        _record(session, actor, "api_key.revoked", key)
    return _get(session, key_id)


def _authorize_issue(session: Session, actor: Actor, user_id: UUID, organization_id: UUID | None) -> None:
    bound_to = actor.caller.bound_organization_id
    if bound_to is not None and organization_id != bound_to:
        raise PermissionDenied(
            "A key that is bound to an organization can issue only keys bound to the same one."
        )
    if actor.user_id != user_id and not actor.caller.is_operator:
        raise PermissionDenied(
            "Only its user can issue a key. Invite other people; they issue their own keys."
        )
    if organization_id is not None:
        require_member(session, organization_id, user_id)


def _authorize_access(actor: Actor, key: ApiKey) -> None:
    bound_to = actor.caller.bound_organization_id
    # A bound key cannot read its user's other keys: a leaked key must not reveal other organizations.
    if actor.user_id == key.user_id and bound_to in (None, key.organization_id):
        return
    if key.organization_id is not None:
        authorize_administration(actor, Permission.CREDENTIAL_MANAGE, key.organization_id)
    elif not actor.caller.is_operator:
        raise ResourceNotFound


def _require_room(session: Session, user_id: UUID, organization_id: UUID | None) -> None:
    """Check that the user exists and has fewer than LIVE_LIMIT live keys. Raises ResourceNotFound, TooManyLive."""
    # Lock the user, so that of two concurrent requests only one can issue the last key below the limit.
    locked = select(users.c.id).where(users.c.id == user_id).with_for_update()
    if session.execute(locked).one_or_none() is None:
        raise ResourceNotFound
    live = select(func.count()).where(
        api_keys.c.user_id == user_id,
        # `is_not_distinct_from` also matches null, so unbound keys are counted as a group of their own.
        api_keys.c.organization_id.is_not_distinct_from(organization_id),
        is_live(api_keys.c),
    )
    if session.execute(live).scalar_one() >= LIVE_LIMIT:
        raise TooManyLive


def _get(session: Session, key_id: UUID) -> ApiKey:
    return get_one(session, _KEYS.where(api_keys.c.id == key_id), _key)


def _record(session: Session, actor: Actor, action: str, key: ApiKey) -> None:
    record(session, actor, action, key.id, organization_id=key.organization_id, user_id=key.user_id)


def _key(row: Row[Any]) -> ApiKey:
    return ApiKey(**row._asdict())


_KEYS = select(*columns_of(ApiKey, api_keys))
