"""Let operators rotate the keys that sign tokens, and drop one that leaked."""

from __future__ import annotations

from shared.identity import key_rotation
from shared.identity.errors import KeyNotPublished
from web.administration import AdministrationRoutes
from web.calls import Answer, Call
from web.identity import agent_schemas as schemas

routes = AdministrationRoutes("signing keys")


@routes.reads("/signing-keys", schemas.SigningKeyList)
def list_signing_keys(call: Call) -> Answer:
    """List the signing keys of both purposes; for operators."""
    return _list(call)


@routes.acts("/signing-keys/rotate", schemas.SigningKeyList, KeyNotPublished)
def rotate_signing_keys(call: Call) -> Answer:
    """Rotate the signing keys; tokens signed before stay good. For operators."""
    key_rotation.rotate_keys(call.services.database, call.services.settings, by=call.actor)
    return _list(call)


@routes.acts("/signing-keys/<kid>/revoke", schemas.SigningKeyList)
def revoke_signing_key(call: Call, kid: str) -> Answer:
    """Revoke a signing key, with every token it signed; for operators."""
    key_rotation.revoke_key(call.services.database, call.services.settings, by=call.actor, kid=kid)
    return _list(call)


def _list(call: Call) -> Answer:
    by = call.actor
    with call.services.database.transaction() as session:
        keys = key_rotation.list_signing_keys(session, by=by)
    shown = [schemas.SigningKeyBody.of(key) for key in keys]
    return Answer(body=schemas.SigningKeyList(signing_keys=shown))
