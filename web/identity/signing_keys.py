"""Routes of signing keys, for operators: list, rotate and revoke signing keys."""

from shared.identity.errors import KeyNotPublished
from shared.identity.tokens import key_rotation
from web.framework.administration import AdministrationRoutes
from web.framework.calls import JsonResponse, RequestContext
from web.identity import agent_schemas as schemas

routes = AdministrationRoutes("signing keys")


@routes.administers(
    "GET",
    "/signing-keys",
    {200: schemas.SigningKeyList},
    summary="List the signing keys of both purposes; for operators",
)
def list_signing_keys(call: RequestContext) -> JsonResponse:
    return _list(call)


@routes.administers(
    "POST",
    "/signing-keys/rotate",
    {200: schemas.SigningKeyList},
    KeyNotPublished,
    summary="Rotate the signing keys; tokens signed before stay valid. For operators",
)
def rotate_signing_keys(call: RequestContext) -> JsonResponse:
    # Pass the database: the function opens a transaction, in which it first locks the keys.
    key_rotation.rotate_keys(call.services.database, call.services.settings, actor=call.actor)
    return _list(call)


@routes.administers(
    "POST",
    "/signing-keys/<kid>/revoke",
    {200: schemas.SigningKeyList},
    summary="Revoke a signing key with all tokens that it signed; for operators",
)
def revoke_signing_key(call: RequestContext, kid: str) -> JsonResponse:
    key_rotation.revoke_key(call.services.database, call.services.settings, actor=call.actor, kid=kid)
    return _list(call)


def _list(call: RequestContext) -> JsonResponse:
    actor = call.actor
    with call.services.database.transaction() as session:
        keys = key_rotation.list_signing_keys(session, actor=actor)
    shown = [schemas.SigningKeyBody.of(key) for key in keys]
    return JsonResponse(body=schemas.SigningKeyList(signing_keys=shown))
