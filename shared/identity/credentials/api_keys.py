"""Personal API keys: each acts as its user, in one organization or in the one the user has selected.

A key never gives more than its issuer holds, and a bound key makes only keys bound alike. Only operators make keys
for others; administrators see and revoke the keys bound to their organization. Limits count per user and
organization, so that none uses up another's.
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
FIRST_KEY_NAME = "First key"
"""The name of the key that comes with a new account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey(ListedSecret):
    """A key, as it may be listed; `organization_id` is None for one that follows the user's selection."""

    id: UUID
    user_id: UUID
    organization_id: UUID | None
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedApiKey:
    """A new key, shown only now."""

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
    """Issue a key, bound to an organization if one is given; raise TooManyLive when the user has a hundred there."""
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
    """Get a key without its secret: one's own, or one bound to an organization whose credentials one manages."""
    key = _get(session, key_id)
    _authorize_access(actor, key)
    return key


def list_api_keys(session: Session, *, actor: Actor, user_id: UUID, **page: Unpack[Position]) -> Page[ApiKey]:
    """List a user's keys, without the secrets: all of one's own, or, for an operator, anyone's."""
    authorize_own_or_operator(actor, user_id)
    statement = _KEYS.where(api_keys.c.user_id == user_id)
    if actor.caller.bound_organization_id is not None:
        statement = statement.where(api_keys.c.organization_id == actor.caller.bound_organization_id)
    return paginate(session, statement, ascending(api_keys.c.id), _key, **page)


def list_organization_api_keys(
    session: Session, *, actor: Actor, organization_id: UUID, **page: Unpack[Position]
) -> Page[ApiKey]:
    """List the keys bound to an organization, no matter whose they are."""
    authorize_administration(actor, Permission.CREDENTIAL_MANAGE, organization_id)
    statement = _KEYS.where(api_keys.c.organization_id == organization_id)
    return paginate(session, statement, ascending(api_keys.c.id), _key, **page)


def revoke_api_key(session: Session, *, actor: Actor, key_id: UUID) -> ApiKey:
    """Revoke a key: one's own, or one bound to an organization whose credentials one manages."""
    key = _get(session, key_id)
    _authorize_access(actor, key)
    if mark_disabled(session, api_keys, api_keys.c.revoked_at, key_id):
        _record(session, actor, "api_key.revoked", key)
    return _get(session, key_id)


def _authorize_issue(session: Session, actor: Actor, user_id: UUID, organization_id: UUID | None) -> None:
    bound_to = actor.caller.bound_organization_id
    if bound_to is not None and organization_id != bound_to:
        raise PermissionDenied("A key that is bound to an organization can only make keys bound to it.")
    if actor.user_id != user_id and not actor.caller.is_operator:
        raise PermissionDenied("A key is made by its user; invite people, and they make keys of their own.")
    if organization_id is not None:
        require_member(session, organization_id, user_id)


def _authorize_access(actor: Actor, key: ApiKey) -> None:
    bound_to = actor.caller.bound_organization_id
    if actor.user_id == key.user_id and bound_to in (None, key.organization_id):
        return
    if key.organization_id is not None:
        authorize_administration(actor, Permission.CREDENTIAL_MANAGE, key.organization_id)
    elif not actor.caller.is_operator:
        raise ResourceNotFound


def _require_room(session: Session, user_id: UUID, organization_id: UUID | None) -> None:
    """Check that the user exists and may have another key, under the user's lock."""
    locked = select(users.c.id).where(users.c.id == user_id).with_for_update()
    if session.execute(locked).one_or_none() is None:
        raise ResourceNotFound
    live = select(func.count()).where(
        api_keys.c.user_id == user_id,
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
