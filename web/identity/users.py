"""Routes of users and API keys: the caller's own keys, and keys that an administrator manages."""

from uuid import UUID

from shared.errors import PermissionDenied
from shared.identity.access.authorization import Actor
from shared.identity.credentials import api_keys
from shared.identity.directory import users
from shared.identity.errors import AlreadyExists, TooManyLive
from web.framework.administration import ORGANIZATION, AdministrationRoutes, created
from web.framework.calls import JsonResponse, RequestContext
from web.identity import schemas

routes = AdministrationRoutes("users")


@routes.administers(
    "GET",
    "/me",
    {200: schemas.UserBody},
    summary="Get the caller's own user, with the active organization",
    # This and the routes below serve suspended organizations, because the user must be able to select another
    # organization.
    serves_suspended=True,
)
def read_me(call: RequestContext) -> JsonResponse:
    actor = call.actor
    with call.services.database.transaction() as session:
        found = users.get_user(session, actor=actor, user_id=_own_id(actor))
    return JsonResponse(body=schemas.UserBody.of(found))


@routes.changes(
    "PUT",
    "/me/active-organization",
    schemas.ActiveOrganization,
    schemas.UserBody,
    summary="Set the active organization, in which the caller's unbound keys act",
    serves_suspended=True,
)
def select_active_organization(call: RequestContext) -> JsonResponse:
    body: schemas.ActiveOrganization = call.read_body()
    # Every handler reads `actor` after the body: if the body was slow, the caller is checked again, and a
    # lost role counts.
    actor = call.actor
    with call.services.database.transaction() as session:
        changed = users.select_active_organization(session, actor=actor, organization_id=body.organization_id)
    return JsonResponse(body=schemas.UserBody.of(changed))


@routes.creates(
    "/users",
    schemas.NewUser,
    schemas.UserBody,
    AlreadyExists,
    summary="Create a user without an organization; for operators",
)
def create_user(call: RequestContext) -> JsonResponse:
    body: schemas.NewUser = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        made = users.create_user(session, actor=actor, email=body.email)
    return created(call, schemas.UserBody.of(made), f"/users/{made.id}")


routes.lists("/users", users.list_users, schemas.UserPage, summary="List all users; for operators")
user = routes.resource("/users/<id:user_id>", schemas.UserBody)
user.reads("read_user", users.get_user, summary="Get the caller's user, or, for operators, any user")
user.acts("disable", users.disable_user, summary="Disable a user with all their keys; for operators")
user.acts("enable", users.enable_user, summary="Enable a disabled user; for operators")


@routes.creates(
    "/api-keys",
    schemas.NewApiKey,
    schemas.IssuedApiKey,
    TooManyLive,
    summary="Create an API key of the caller, or, for operators, of any user",
)
def issue_api_key(call: RequestContext) -> JsonResponse:
    body: schemas.NewApiKey = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        issued = api_keys.issue_api_key(
            session,
            actor=actor,
            user_id=body.user_id or _own_id(actor),
            organization_id=body.organization_id,
            name=body.name,
            expires_at=body.expires_at,
        )
    shown = schemas.IssuedApiKey.with_secret(issued.key, api_key=issued.secret.value)
    return created(call, shown, f"/api-keys/{issued.key.id}")


@routes.pages(
    "/api-keys",
    schemas.ApiKeyPage,
    schemas.ApiKeyQuery,
    summary="List the caller's own API keys, or, for operators, any user's",
)
def list_api_keys(call: RequestContext) -> JsonResponse:
    actor = call.actor
    query: schemas.ApiKeyQuery = call.query
    with call.services.database.transaction() as session:
        page = api_keys.list_api_keys(
            # The domain decides whose keys the caller may list: a user lists their own keys, an operator any
            # user's.
            session,
            actor=actor,
            user_id=query.user_id or _own_id(actor),
            **query.position,
        )
    return JsonResponse(body=schemas.ApiKeyPage.of(page))


routes.lists(
    f"{ORGANIZATION}/api-keys",
    api_keys.list_organization_api_keys,
    schemas.ApiKeyPage,
    summary="List the API keys that are bound to an organization",
)
api_key = routes.resource("/api-keys/<id:key_id>", schemas.ApiKeyBody)
api_key.reads("read_api_key", api_keys.get_api_key, summary="Get an API key, without its secret")
api_key.acts(
    "revoke",
    api_keys.revoke_api_key,
    summary="Revoke an API key of the caller or of an organization that the caller administers",
)


def _own_id(actor: Actor) -> UUID:
    # No request reaches this line, because `require_administrator()` refuses deployments. The type also allows the
    # command line.
    if actor.user_id is None:
        raise PermissionDenied
    return actor.user_id
