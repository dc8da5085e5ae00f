"""Administer users and API keys: one's own, and, with the right to, others'."""

from __future__ import annotations

from uuid import UUID

from shared.errors import PermissionDenied
from shared.identity import api_keys, users
from shared.identity.authorization import Actor
from shared.identity.errors import AlreadyExists, TooManyLive
from web.administration import AdministrationRoutes, created
from web.calls import Answer, Call
from web.identity import schemas

routes = AdministrationRoutes("users")


@routes.reads("/me", schemas.UserBody)
def read_me(call: Call) -> Answer:
    """Get the caller's own user, with the active organization."""
    by = call.actor
    with call.services.database.transaction() as session:
        found = users.get_user(session, by=by, user_id=_own_id(by))
    return Answer(body=schemas.UserBody.of(found))


@routes.changes("PUT", "/me/active-organization", schemas.ActiveOrganization, schemas.UserBody)
def select_active_organization(call: Call) -> Answer:
    """Set the active organization, in which the caller's unbound keys act."""
    by = call.actor
    body: schemas.ActiveOrganization = call.read_body()
    with call.services.database.transaction() as session:
        changed = users.select_active_organization(session, by=by, organization_id=body.organization_id)
    return Answer(body=schemas.UserBody.of(changed))


@routes.creates("/users", schemas.NewUser, schemas.UserBody, AlreadyExists)
def create_user(call: Call) -> Answer:
    """Create a user who belongs to no organization yet; for operators."""
    by = call.actor
    body: schemas.NewUser = call.read_body()
    with call.services.database.transaction() as session:
        made = users.create_user(session, by=by, email=body.email)
    return created(call, schemas.UserBody.of(made), f"/users/{made.id}")


@routes.lists("/users", schemas.UserPage)
def list_users(call: Call) -> Answer:
    """List all users; for operators."""
    by = call.actor
    with call.services.database.transaction() as session:
        page = users.list_users(session, by=by, **call.query.position)
    return Answer(body=schemas.UserPage.of(page))


@routes.reads("/users/<id:user_id>", schemas.UserBody)
def read_user(call: Call, user_id: UUID) -> Answer:
    """Get a user: oneself, or, for operators, anyone."""
    by = call.actor
    with call.services.database.transaction() as session:
        found = users.get_user(session, by=by, user_id=user_id)
    return Answer(body=schemas.UserBody.of(found))


@routes.acts("/users/<id:user_id>/disable", schemas.UserBody)
def disable_user(call: Call, user_id: UUID) -> Answer:
    """Disable a user, and with them all their keys; for operators."""
    by = call.actor
    with call.services.database.transaction() as session:
        changed = users.disable_user(session, by=by, user_id=user_id)
    return Answer(body=schemas.UserBody.of(changed))


@routes.acts("/users/<id:user_id>/enable", schemas.UserBody)
def enable_user(call: Call, user_id: UUID) -> Answer:
    """Enable a disabled user; for operators."""
    by = call.actor
    with call.services.database.transaction() as session:
        changed = users.enable_user(session, by=by, user_id=user_id)
    return Answer(body=schemas.UserBody.of(changed))


@routes.creates("/api-keys", schemas.NewApiKey, schemas.IssuedApiKey, TooManyLive)
def issue_api_key(call: Call) -> Answer:
    """Create an API key for oneself; operators also for others."""
    by = call.actor
    body: schemas.NewApiKey = call.read_body()
    with call.services.database.transaction() as session:
        issued = api_keys.issue_api_key(
            session,
            by=by,
            user_id=body.user_id or _own_id(by),
            organization_id=body.organization_id,
            name=body.name,
            expires_at=body.expires_at,
        )
    shown = schemas.IssuedApiKey.with_secret(issued.key, api_key=issued.secret.value)
    return created(call, shown, f"/api-keys/{issued.key.id}")


@routes.lists("/api-keys", schemas.ApiKeyPage, schemas.ApiKeyQuery)
def list_api_keys(call: Call) -> Answer:
    """List the caller's own API keys, or, for operators, any user's."""
    by = call.actor
    query: schemas.ApiKeyQuery = call.query
    with call.services.database.transaction() as session:
        page = api_keys.list_api_keys(session, by=by, user_id=query.user_id or _own_id(by), **query.position)
    return Answer(body=schemas.ApiKeyPage.of(page))


@routes.lists("/organizations/<id:organization_id>/api-keys", schemas.ApiKeyPage)
def list_organization_api_keys(call: Call, organization_id: UUID) -> Answer:
    """List the API keys that are bound to an organization."""
    by = call.actor
    with call.services.database.transaction() as session:
        page = api_keys.list_organization_api_keys(
            session, by=by, organization_id=organization_id, **call.query.position
        )
    return Answer(body=schemas.ApiKeyPage.of(page))


@routes.reads("/api-keys/<id:key_id>", schemas.ApiKeyBody)
def read_api_key(call: Call, key_id: UUID) -> Answer:
    """Get an API key, without its secret."""
    by = call.actor
    with call.services.database.transaction() as session:
        found = api_keys.get_api_key(session, by=by, key_id=key_id)
    return Answer(body=schemas.ApiKeyBody.of(found))


@routes.acts("/api-keys/<id:key_id>/revoke", schemas.ApiKeyBody)
def revoke_api_key(call: Call, key_id: UUID) -> Answer:
    """Revoke an API key: one's own, or one bound to an organization whose credentials one manages."""
    by = call.actor
    with call.services.database.transaction() as session:
        revoked = api_keys.revoke_api_key(session, by=by, key_id=key_id)
    return Answer(body=schemas.ApiKeyBody.of(revoked))


def _own_id(by: Actor) -> UUID:
    if by.user_id is None:
        raise PermissionDenied
    return by.user_id
